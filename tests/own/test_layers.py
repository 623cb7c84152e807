"""Layers of a user's own model in a private run: each trains, and none mixes records."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.builders import experiment_of
from tests.core.engine.test_backends import fast_backends, sums
from torch import nn

from m2fdp.core.engine.backends import ReferenceBackend
from m2fdp.core.engine.minibatches import Minibatches

SMALL = {
    "topology.fanouts": [2, 2],
    "training": {"rounds": 2, "local_steps": 2, "local_aggregation": None, "batch_size": 8},
    "model.name": "own_layers:made",
}


class Sequence(nn.Module):
    """An image's rows one after the other."""

    def __init__(self, layer, width=6):
        super().__init__()
        self.layer, self.last = layer, nn.Linear(width, 10)

    def forward(self, images):
        return self.last(self.layer(images[:, 0])[0][:, -1])


class Embedded(nn.Module):
    """Grey levels as whole numbers, each with a vector of its own."""

    def __init__(self):
        super().__init__()
        self.vectors, self.last = nn.Embedding(17, 3), nn.Linear(64 * 3, 10)

    def forward(self, images):
        return self.last(self.vectors((16 * images).round().long().flatten(1)).flatten(1))


def normed(layer):
    return nn.Sequential(nn.Conv2d(1, 4, 3), layer, nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))


def opacus_layer(name):
    from opacus import layers

    return getattr(layers, name)(8, 6, batch_first=True)


LAYERS = {
    "GroupNorm": lambda: normed(nn.GroupNorm(2, 4)),
    "LayerNorm": lambda: normed(nn.LayerNorm([4, 6, 6])),
    "InstanceNorm": lambda: normed(nn.InstanceNorm2d(4, affine=True)),
    "Embedding": Embedded,
    "LSTM": lambda: Sequence(nn.LSTM(8, 6, batch_first=True)),
    "two LSTMs": lambda: Sequence(nn.LSTM(8, 3, 2, batch_first=True, bidirectional=True)),
    "LSTM, projected": lambda: Sequence(nn.LSTM(8, 9, batch_first=True, proj_size=6)),
    "GRU": lambda: Sequence(nn.GRU(8, 6, batch_first=True)),
    "RNN": lambda: Sequence(nn.RNN(8, 6, batch_first=True)),
    "DPLSTM of Opacus": lambda: Sequence(opacus_layer("DPLSTM")),
    "Dropout": lambda: normed(nn.Dropout(0.4)),
    "Dropout2d": lambda: normed(nn.Dropout2d(0.4)),
    "Dropout at rate 0": lambda: normed(nn.Dropout(0.0)),
}


@pytest.fixture
def trained(monkeypatch):
    def train(make, *changes):
        monkeypatch.setitem(sys.modules, "own_layers", SimpleNamespace(made=lambda *_: make()))
        return experiment_of(SMALL, *changes)

    return train


@pytest.mark.parametrize("name", LAYERS)
def test_a_private_run_trains_it_and_no_record_touches_anothers_gradient(name, trained):
    experiment = trained(LAYERS[name])
    assert experiment.summary()["guarantee"] == "verified"
    assert experiment.train().metrics["loss"].notna().all()
    model, counts = experiment.build_model(0), [3, 0, 9]
    batches = Minibatches(
        torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(1)),
        torch.arange(12) % 10,
        np.append(np.arange(12), 0),
        np.append(np.ones(12, np.float32), 0.0).astype(np.float32),
        np.concatenate([[0], np.cumsum(counts)]),
        consecutive=True,
        key=2**47 + 5 if model.draws else None,
    )
    weights = model.initial_vector().expand(3, -1).clone()
    plain = sums(ReferenceBackend(model), weights, batches, 0.1)  # one record at a time
    for backend in fast_backends(model, counts):
        torch.testing.assert_close(
            sums(backend, weights, batches, 0.1), plain, rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize(("mechanism", "alone"), [("gradient", True), ("upload", False)])
def test_the_card_says_what_becomes_of_the_promise(mechanism, alone, trained):
    """Where each record's gradient is clipped, a layer can mix none; else the update is clipped."""
    changes = {"privacy.mechanism": mechanism, "training.local_steps": 1}
    (part,) = trained(LAYERS["LSTM"], changes).summary()["own_code"]
    assert part["enforced"]
    assert ("each record passes it alone" in part["trusted"]) == alone


def test_a_recurrent_layer_computes_what_it_did_before_it_was_tried(trained):
    """The zeros that it starts from are torch's own."""
    torch.manual_seed(0)
    for name in ("LSTM", "two LSTMs", "LSTM, projected", "GRU", "RNN"):
        module, images = LAYERS[name](), torch.rand(5, 1, 8, 8)
        before = module(images)
        alone = module.layer(images[0, 0])[0]  # a sequence without others
        trained(lambda module=module: module).build_model(0)
        torch.testing.assert_close(module(images), before)
        torch.testing.assert_close(module.layer(images[0, 0])[0], alone)
