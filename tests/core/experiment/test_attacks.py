"""The line of the ledger that stands beside an attack."""

from __future__ import annotations

import math

import pytest

from m2fdp import Experiment
from m2fdp.core.config import parse_config

STEP = {
    "training": {"rounds": 1, "local_steps": 1, "local_aggregation": None, "batch_size": None},
    "privacy": {"mechanism": "upload", "calibration": "multiplier", "noise_multiplier": 0.01},
    "model": {"name": "dense"},
    "partition": {"scheme": "iid"},
    "attack": {"method": "analytic", "observer": "far_devices", "messages": 1},
}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"algorithm": "ldp", "topology": {"fanouts": [2, 2]}}, "far_devices"),
        # All are below the cloud, whose noise is the only one.
        ({"algorithm": "cdp", "topology": {"fanouts": [2, 2]}}, "cousins"),
    ],
)
def test_epsilon_beside_an_attack_is_that_of_whoever_is_elsewhere(changes, line):
    experiment = Experiment.from_config(parse_config(STEP | changes))
    ledger = experiment.calibrate().mechanism.ledger
    worst = max(ledger.epsilon(each, 1) for each in ledger.lines if each.kind == line)
    told = experiment.attack().record["metrics"]["epsilon"]
    assert math.isfinite(worst) and told == pytest.approx(worst)
