"""What rounding to float32, before any noise, may tell of a record: a condition, and when."""

import pytest
from tests.builders import experiment_of

DENSE = {
    "model.name": "dense",
    "topology.fanouts": [3, 4],
    "topology.trust.ratios": [1.0],
    "privacy.clipping_norm": 0.01,
}


@pytest.mark.parametrize(
    ("learning_rate", "guarantee"), [(0.001, "conditional"), (100.0, "verified")]
)
def test_epsilon_is_conditional_where_rounding_comes_near_a_record(learning_rate, guarantee):
    """A record moves the first model by C eta / 476 = 2e-8, and rounding by up to 5e-6."""
    experiment = experiment_of(DENSE, {"training.learning_rate": learning_rate})
    summary, conditional = experiment.summary(), guarantee == "conditional"
    assert summary["guarantee"] == guarantee
    assert (f"epsilon_{guarantee}") in summary
    told = [line for line in summary["assumptions"] if "float32" in line and "rounding" in line]
    assert len(told) == 1 and ("tells nothing of a record" in told[0]) == conditional
    warned = [line for line in experiment.warnings() if "rounding to float32" in line]
    assert len(warned) == conditional


def test_activations_are_no_models():
    """Devices that noise their part's gradient round what they send by its own size alone, however
    short the step."""
    split = {
        "algorithm": "m2fdp_tiers",
        "model.name": "cnn12",
        "model.channels": [3, 4, 5],
        "tiering.tiers": 3,
        "tiering.schedule": "static",
        "tiering.static_tier": 1,
        "tiering.offload_to": "anyone",
        "topology.trust.ratios": [0.0],
        "training.learning_rate": 1e-6,
        "privacy.adjacency": "zero_out",
        "privacy.labels": "public",
    }
    assert experiment_of(split).summary()["guarantee"] == "verified"
    trusted = {"topology.trust.ratios": [1.0]}
    assert experiment_of(split, trusted).summary()["guarantee"] == "conditional"
