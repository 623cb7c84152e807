"""What rounding to float32, before any noise, may tell of a record: a warning, and when."""

import pytest
from tests.builders import experiment_of

DENSE = {
    "model.name": "dense",
    "topology.fanouts": [3, 4],
    "topology.trust.ratios": [1.0],
    "privacy.clipping_norm": 0.01,
}


@pytest.mark.parametrize(("learning_rate", "warns"), [(0.001, True), (100.0, False)])
def test_a_step_that_rounding_comes_near_is_told(learning_rate, warns):
    """A record moves the first model by C eta / 476 = 2e-8, and rounding by up to 5e-6."""
    experiment = experiment_of(DENSE, {"training.learning_rate": learning_rate})
    said = [line for line in experiment.warnings() if "rounding to float32" in line]
    assert len(said) == warns
    assert any("rounded to float32" in line for line in experiment.summary()["assumptions"])
