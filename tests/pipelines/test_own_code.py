"""A run whose data set, split, model and loss are all the user's own, in the project's root."""

import sys

from tests.finished import manifest_of, output

OWN = """
import numpy as np
import torch
from torch import nn
from m2fdp.core.data.dataset import Dataset


def bars():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=400)
    images = 0.2 * rng.random((400, 8, 8, 1))
    images[np.arange(400), 2 * labels] += 0.8
    return Dataset("bars", images, labels, 300, 3)


def in_turn(labels, n_classes, edge_of_device, rng):
    return rng.permutation(len(labels)) % len(edge_of_device)


def net(shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, n_classes))


def focal(scores, labels):
    likely = scores.softmax(-1).gather(-1, labels[:, None])[:, 0]
    return -((1 - likely) ** 2) * likely.log()
"""
PARAMS = (
    "dataset.name=own_things:bars,partition.scheme=own_things:in_turn,model.name=own_things:net,"
    "model.loss=own_things:focal,topology.fanouts=2|3,training.rounds=3,training.learning_rate=2.0,"
    "privacy.epsilon=50,threads=1"
)


def test_all_of_them_together(project, kedro_run):
    (project / "own_things.py").write_text(OWN)
    before = list(sys.path)
    result = kedro_run(f"--params={PARAMS}")
    sys.modules.pop("own_things", None)
    assert result.exit_code == 0, result.output
    assert sys.path == before
    manifest = manifest_of(project)
    assert set(manifest["dataset"]) == {"own_things:bars"}
    assert manifest.groupby("device").size().drop(-1).tolist() == [50] * 6
    assert output(project, "round_metrics.csv")["accuracy"].iloc[-1] > 0.6
