"""One ε for all who are distrusted: by the cloud's noise, or by shares of one behind sums."""

from math import sqrt

import pytest
from tests.builders import records_of

from m2fdp.convergence.descent import round_noise
from m2fdp.core.config import load_config
from m2fdp.experiment import Experiment

SHARED = {"secure_aggregation.noise": "shared"}
TRUSTED = {"topology.trust.ratios": [1.0]}
# Ten servers of five devices each; what is left in the global model over central privacy's.
WAYS = {
    "cdp": ({"algorithm": "cdp"}, 1.0),
    "sums over all devices": (
        SHARED
        | {
            "algorithm": "hfl_dp",
            "secure_aggregation.layers": [2],
            "secure_aggregation.decode": "cloud",
        },
        1.0,
    ),
    "sums over servers": (
        SHARED | TRUSTED | {"algorithm": "m2fdp", "secure_aggregation.layers": [1]},
        1.0,
    ),
    "m2fdp": (TRUSTED | {"algorithm": "m2fdp"}, sqrt(10)),
    "hdp": ({"algorithm": "hdp"}, sqrt(10)),
    "hfl_dp": ({"algorithm": "hfl_dp"}, sqrt(50)),
    "ldp": ({"algorithm": "ldp"}, sqrt(50)),
}


def noise_of(changes, **more):
    base = {
        "topology.fanouts": [10, 5],
        "training.rounds": 5,
        "training.local_steps": 1,
        "training.local_aggregation": None,
        "training.batch_size": None,
        "privacy.epsilon": 1.0,
    }
    config = load_config(base | changes | more)
    experiment = Experiment.from_config(config, *records_of([20] * 50))
    mechanism = experiment.calibrate().mechanism
    schedule = experiment.plan.schedule
    drawn = round_noise(experiment.network, mechanism.lock_step, mechanism.noise, schedule, 1)
    return sqrt(drawn.arriving)


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_noise_in_the_global_model_at_one_epsilon(mechanism):
    found = {
        way: noise_of(changes, **{"privacy.mechanism": mechanism})
        for way, (changes, _) in WAYS.items()
    }
    for way, (_, times) in WAYS.items():
        assert found[way] / found["cdp"] == pytest.approx(times, rel=1e-3), way
