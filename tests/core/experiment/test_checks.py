"""What is refused, and what is told, before anything is trained."""

import numpy as np
import pytest

from m2fdp import Experiment
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config, surprises
from m2fdp.given.loading import parse_config

TRAINING = {"rounds": 2, "local_steps": 4, "learning_rate": 1, "local_aggregation": {1: 2}}
VALID = {
    "algorithm": "m2fdp",
    "dataset": {},
    "partition": {},
    "topology": {"fanouts": [4, 3], "trust": {"ratios": [0.5]}},
    "model": {},
    "training": {"rounds": 1, "local_steps": 1, "learning_rate": 1},
    "privacy": {"epsilon": 1, "delta": 1e-5, "clipping_norm": 1},
    "resources": {},
}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"algorithm": "fedprox"}, "algorithm"),
        ({"topology": {"fanouts": [4, 3], "trust": {"ratios": [0.5, 1]}}}, "topology.trust.ratios"),
        ({"topology": {"edges": "absent.csv"}}, "topology.edges"),
        ({"model": {"name": "vgg"}}, "model.name"),
        ({"training": VALID["training"] | {"local_aggregation": {2: 1}}}, "training.local_agg"),
        ({"training": VALID["training"] | {"participants": 4}}, "training.participants"),
    ],
)
def test_blocks_that_contradict_one_another(change, key):
    check_config(parse_config(VALID))
    with pytest.raises(InputError) as caught:
        check_config(parse_config(VALID | change))
    assert caught.value.key.startswith(key)


def surprises_of(algorithm="m2fdp", control=None, **training):
    training = {"rounds": 5, "local_steps": 4, "learning_rate": 1} | training
    blocks = {"algorithm": algorithm, "training": training, "control": control or {}}
    config = parse_config(VALID | blocks)
    return surprises(config, check_config(config))


@pytest.mark.parametrize("every", [1, 3])
def test_local_aggregations_that_come_surprise_nobody(every):
    assert surprises_of(local_aggregation={1: every}) == []
    assert surprises_of(local_aggregation={1: every}, local_steps=1) == []  # there can be none


@pytest.mark.parametrize("every", [4, 9])
def test_a_local_aggregation_that_never_comes_is_told(every):
    (line,) = surprises_of(local_aggregation={1: every})
    assert line.startswith(f"training.local_aggregation.1 = {every}: never comes")
    assert surprises_of("pedpfl", local_aggregation={1: every}) == []  # a star has none
    chosen = {"enabled": True, "smoothness": 1.0}  # the controller may take up to 40 steps
    assert surprises_of(control=chosen, local_aggregation={1: every}) == []


def test_the_papers_step_size_factor_is_told():
    papers = {"enabled": True, "gap": "papers", "smoothness": "estimated"}
    (line,) = surprises_of(control=papers)
    assert line.startswith("control.step_size_factor = 1 is J's own")
    assert "try 20 " in line
    assert surprises_of(control=papers | {"step_size_factor": 20}) == []
    assert surprises_of(control={"enabled": True, "smoothness": 1.0}) == []
    (line,) = surprises_of(control={"enabled": True})
    assert line.startswith("control.smoothness = null: beta is what no record passes")


def test_cuda_where_there_is_none(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match="device = 'cuda': no CUDA device"):
        check_config(parse_config(VALID | {"device": "cuda"}))


def check(shape=(1, 8, 8), model="cnn12", training=None, **privacy):
    blocks = {"model": {"name": model}, "training": TRAINING | (training or {})}
    config = parse_config(VALID | blocks | {"privacy": VALID["privacy"] | privacy})
    channels, *sides = shape
    dataset = Dataset("digits", np.zeros((2, *sides, channels)), np.arange(2), 1, n_classes=10)
    experiment = Experiment(config)
    vars(experiment)["dataset"] = dataset
    experiment.check_split(np.array([10, 100]))


def test_data_that_model_or_delta_refuse():
    check()
    with pytest.raises(InputError, match="model.name"):
        check(shape=(1, 4, 4))
    with pytest.raises(InputError, match="privacy.delta"):
        check(delta=0.02)


def test_a_delta_that_pays_for_all_that_is_ever_drawn():
    """Eight steps with 0.01 expected records of 100 draw a record with chance 8e-4."""
    rarely = {"batch_size": 0.01}
    check(training=rarely, delta=7e-4)
    with pytest.raises(InputError, match=r"privacy.delta = 0.0009: must be below 0.0008"):
        check(training=rarely, delta=9e-4)
    # A device as a whole takes part for certain.
    check(training=rarely, delta=9e-4, mechanism="upload", unit="device")
