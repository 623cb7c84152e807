"""The audit of sums behind shared noise: who reads them stays below the ledger, and a build that
shares too little does not.

All seeds are fixed; the confidences in the comments say how likely a correct build was to fail.
"""

from dataclasses import replace

import numpy as np
import pytest
from tests.adversaries.copies import System
from tests.builders import records_of

from m2fdp import load_config
from m2fdp.adversaries.audit import audited_lines
from m2fdp.experiment import Experiment

BASE = {
    "topology.fanouts": [10, 2],
    "topology.trust.ratios": [1.0],
    "training.rounds": 6,
    "training.local_steps": 1,
    "training.local_aggregation": None,
    "training.batch_size": None,
    "privacy.epsilon": 1.0,
    "privacy.delta": 1e-3,
    "privacy.clipping_norm": 1.0,
    "model.name": "softmax",
    "secure_aggregation.layers": [1],
    "secure_aggregation.noise": "shared",
}
UPLOAD = {"privacy.mechanism": "upload", "privacy.unit": "device"}
ALL_DEVICES = {
    "algorithm": "hfl_dp",
    "secure_aggregation.layers": [2],
    "secure_aggregation.decode": "cloud",
}
SYSTEMS = {
    "gradient, one step": {},
    "gradient, lock step": {"training.local_steps": 2, "training.rounds": 3},
    "gradient, all devices": ALL_DEVICES | {"training.local_steps": 2},
    "gradient, zones": {"algorithm": "hfl_dp", "secure_aggregation.layers": [2]},
    "gradient, some silent": {"secure_aggregation.dropout": 0.1},
    "gradient, colluders": {"threat.colluding": 1},
    "upload, servers": UPLOAD,
    "upload, all devices": UPLOAD | ALL_DEVICES,
    "separate": {"secure_aggregation.noise": "separate"},
}


def run_of(changes, louder=1.0):
    """The audited run, its noise too quiet by a factor."""
    dataset, manifest = records_of([100] * 20, shape=(1, 1, 1))
    experiment = Experiment.from_config(load_config(BASE, changes), dataset, manifest)
    mechanism = experiment.calibrate().mechanism
    noise = mechanism.noise
    quiet = replace(
        noise,
        steps=noise.steps * louder,
        heads=tuple(of_layer * louder for of_layer in noise.heads),
        messages=tuple(of_layer * louder for of_layer in noise.messages),
    )
    schedule, privacy = experiment.plan.schedule, experiment.config.privacy
    quieter, sizes = replace(mechanism, noise=quiet), experiment.samples.sizes
    return System(experiment.network, quieter, schedule, privacy, sizes)


@pytest.mark.parametrize("name", SYSTEMS)
def test_who_reads_a_sum_stays_below_the_ledger(name):
    # One observer each: a false alarm in any with probability at most 0.01.
    (found,) = run_of(SYSTEMS[name]).audit(400, 1 - 0.01 / len(SYSTEMS), seed=0)
    servers = {"its untrusted parent", "untrusted servers"}
    assert found.observer in {"the cloud", "the cloud, its parent"} | servers
    assert 0 <= found.epsilon_lower <= found.epsilon_upper


@pytest.mark.parametrize("name", ["gradient, one step", "gradient, lock step", "upload, servers"])
def test_shares_of_one_nth_are_caught(name):
    """Each adds 1/10 of the noise instead of 1/sqrt(10), as if deviations added up."""
    (found,) = run_of(SYSTEMS[name], louder=1 / np.sqrt(10)).audit(200, seed=0)
    assert found.epsilon_lower > found.epsilon_upper


@pytest.mark.parametrize("name", ["gradient, lock step", "upload, servers"])
def test_the_noise_of_one_member_alone_is_caught(name):
    run = run_of(SYSTEMS[name])
    noise = run.mechanism.noise

    def of_one(of_layer):
        return of_layer * (np.arange(len(of_layer)) == 0)

    alone = replace(
        noise,
        heads=tuple(of_one(of_layer) for of_layer in noise.heads),
        messages=tuple(of_one(of_layer) for of_layer in noise.messages),
    )
    (found,) = replace(run, mechanism=replace(run.mechanism, noise=alone)).audit(200, seed=0)
    assert found.epsilon_lower > found.epsilon_upper


def test_the_audit_sees_what_the_reader_sees():
    """Of the sum of ten, not of a single server's message."""
    (line,) = audited_lines(run_of({}).mechanism.ledger, BASE["training.rounds"])
    assert line.kind == "cloud"
    assert line.deviation == pytest.approx(line.position.noise * np.sqrt(10))
