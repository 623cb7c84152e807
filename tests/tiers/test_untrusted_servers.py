"""Devices that split their model below a server that nobody trusts, in the engine's own rounds."""

import numpy as np
import pytest
import torch
from tests.builders import experiment_of

from m2fdp.core.errors import InputError
from m2fdp.experiment import Experiment

SETTING = {
    "algorithm": "m2fdp_tiers",
    "model.name": "cnn12",
    "model.channels": [3, 4, 5],
    "topology.fanouts": [2, 2],
    "topology.trust.ratios": [0.0],
    "training.rounds": 2,
    "training.local_steps": 1,
    "training.local_aggregation": None,
    "training.batch_size": 8,
    "training.learning_rate": 1e-3,
    "partition.samples_per_device": 20,
    "tiering.offload_to": "anyone",
    "clock.model": "trained",
    "privacy.adjacency": "zero_out",
    "privacy.delta": 1e-3,
    "threads": 1,
}


def private(**keys) -> Experiment:
    return experiment_of(SETTING, keys)


def test_randomised_labels_are_what_both_parts_are_trained_by():
    experiment = private(**{"privacy.labels": "randomised", "privacy.label_epsilon": 0.5})
    truth = experiment.shards().labels
    drawn = experiment.simulation().shards.labels
    assert 0.2 < float((truth == drawn).float().mean()) / (np.exp(0.5) / (np.exp(0.5) + 9)) < 3
    assert torch.equal(drawn, experiment.simulation().shards.labels)
    assert experiment.calibrate().mechanism.epsilon(2) <= 4.0


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"model.name": "resnet", "model.channels": None}, "model.norm"),
        ({"leakage.patch_shuffling": True}, "leakage.patch_shuffling"),
        ({"privacy.adjacency": "add_remove"}, "privacy.adjacency"),
        ({"privacy.mechanism": "upload"}, "privacy.mechanism"),
        ({"training.participants": 2}, "training.participants"),
    ],
)
def test_what_has_no_promise_is_refused_in_one_line(keys, key):
    with pytest.raises(InputError) as caught:
        private(**keys)
    assert caught.value.key == key
    assert "\n" not in str(caught.value)


def test_the_summary_says_how_records_and_labels_come_to_the_server():
    summary = private().summary()
    assert summary["sampling"] == "poisson, seen by who is sent activations"
    assert summary["labels"] == "public"
    assert summary["epsilon_by_observer"]["labels"] == "inf"
    assert any("its label is public" in line for line in summary["assumptions"])
    plain = private(**{"topology.trust.ratios": [1.0]}).summary()
    assert plain["sampling"] == "poisson"
    assert "labels" not in plain


def test_zones_whose_servers_read_activations_have_no_table_of_sums_of_noise():
    """A server's part of a model is made of one device's activations: no other device's noise
    hides it, and the table would give the cloud an epsilon that is too small."""
    anyone = private()
    assert anyone.zones_table().empty
    assert len(set(anyone.ledger().loc[lambda t: t["kind"] != "labels", "epsilon"])) == 1
    assert not private(**{"topology.trust.ratios": [1.0]}).zones_table().empty
