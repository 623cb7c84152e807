"""What a run tells of records that devices hold out: its score, and nothing else."""

import math

import pytest
import torch
from tests.builders import experiment_of

from m2fdp.core.errors import InputError

# A dense model's scores are products of two weights: these overflow where the weights do not.
STEEP = {
    "model.name": "dense",
    "topology.fanouts": [3, 4],
    "training.rounds": 1,
    "training.local_steps": 1,
    "training.local_aggregation": None,
    "training.learning_rate": 1e9,
    "privacy.clipping_norm": 1e9,
    "privacy.epsilon": 1e-4,
    "partition.validation_fraction": 0.2,
    "training.evaluate_on": "validation",
}


def test_a_loss_on_held_out_records_ends_no_run():
    """Else that a run has no score would tell of the records, without noise."""
    experiment = experiment_of(STEEP, {"partition.held_out_by": "devices"})
    trained = experiment.train()
    assert trained.metrics["loss"].iloc[-1] > 3e38
    assert all(torch.isfinite(value).all() for value in trained.state_dict.values())
    assert math.isfinite(experiment.score(trained.state_dict))
    assert "diverged" in trained.warning


def test_records_in_clear_do():
    with pytest.raises(InputError, match="diverged by round 1"):
        experiment_of(STEEP).train()
