"""What every observer learns of sums behind shared noise, and how much of it each member adds."""

from math import inf, sqrt

import numpy as np
import pytest
from tests.builders import records_of

from m2fdp import load_config
from m2fdp.experiment import Experiment

BASE = {
    "topology.fanouts": [10, 5],
    "topology.trust.ratios": [1.0],
    "training.rounds": 200,
    "training.local_steps": 1,
    "training.local_aggregation": None,
    "training.batch_size": 256,
    "privacy.epsilon": 1.0,
    "privacy.clipping_norm": 1.0,
    "model.name": "softmax",
}
SHARED = {"secure_aggregation.layers": [1], "secure_aggregation.noise": "shared"}
ALL_DEVICES = {
    "algorithm": "hfl_dp",
    "secure_aggregation.layers": [2],
    "secure_aggregation.decode": "cloud",
    "secure_aggregation.noise": "shared",
}


def mechanism_of(*changes):
    """50 devices of 1,200 records: q = 256/1200."""
    config = load_config(BASE, *changes)
    dataset, manifest = records_of([1200] * 50, shape=(1, 1, 1))
    return Experiment.from_config(config, dataset, manifest).calibrate().mechanism


def by_kind(mechanism):
    return mechanism.ledger.by_kind(200)


def on_the_global_sum(mechanism):
    """The deviation of the global step's noise, over what one record moves it by."""
    steps, nodes = mechanism.noise.steps, mechanism.lock_step.nodes
    if nodes[0][0] == 0:
        return steps[0] * 256 * 50
    return sqrt(((steps / len(nodes)) ** 2).sum()) * 256 * 50


@pytest.fixture(scope="module")
def central():
    """The cloud trusted: one noise on the sum."""
    return mechanism_of({"algorithm": "cdp"})


def test_sums_hold_as_much_noise_as_a_trusted_cloud_adds(central):
    """Specs' z = 11.37 at q = 0.213, T = 200; without sums: test_accumulated_noise.py."""
    of_the_cloud = on_the_global_sum(central)
    assert of_the_cloud == pytest.approx(11.37, rel=5e-3)
    two_steps = SHARED | {"training.local_steps": 2, "training.rounds": 100}
    for changes in (ALL_DEVICES, two_steps):
        assert on_the_global_sum(mechanism_of(changes)) == pytest.approx(of_the_cloud, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "inflation"),
    [
        ({"secure_aggregation.threshold": 7, "secure_aggregation.dropout": 0.05}, sqrt(10 / 7)),
        ({"secure_aggregation.threshold": 7, "threat.colluding": 3}, sqrt(10 / 4)),
    ],
)
def test_who_may_be_missing_or_tell_is_paid_for(central, changes, inflation):
    found = mechanism_of(SHARED, changes)
    expected = on_the_global_sum(central) * inflation
    assert on_the_global_sum(found) == pytest.approx(expected, rel=1e-3)
    assert found.epsilon(200) <= 1


@pytest.mark.parametrize(
    ("changes", "epsilon"),
    [
        ({"secure_aggregation.layers": [1]}, 0.282),
        (ALL_DEVICES | {"secure_aggregation.noise": "separate"}, 0.117),
    ],
)
def test_noise_that_is_not_shared_is_enough_by_itself(changes, epsilon):
    """One full noise each: what sums leave of epsilon 1."""
    alone = mechanism_of({"algorithm": changes.get("algorithm", "m2fdp")})
    found = mechanism_of(changes)
    np.testing.assert_allclose(found.noise.steps, alone.noise.steps)
    assert by_kind(found)["cloud"] == pytest.approx(epsilon, rel=1e-2)


def test_every_observer_of_a_sum_has_its_line():
    found = mechanism_of(SHARED, {"threat.colluding": 2, "secure_aggregation.threshold": 8})
    lines = {line.kind: line for line in found.ledger.lines}
    share = lines["cloud"].position.noise
    # Eight are left, of whom two tell the others.
    assert lines["colluders"].deviation == pytest.approx(share * sqrt(6))
    assert "colluders" in found.ledger.distrusted
    for kind in ("cloud", "far_devices", "public", "siblings", "downlinks"):
        assert lines[kind].deviation == pytest.approx(share * sqrt(10))
    assert lines["trusted_servers"].deviation == lines["uplinks"].deviation == 0


def test_who_listens_to_masked_messages_learns_nothing():
    found = mechanism_of(ALL_DEVICES)
    lines = {line.kind: line for line in found.ledger.lines}
    share = lines["cloud"].position.noise
    assert lines["uplinks"].deviation == inf
    assert lines["uplinks"].sees == "uniformly random words"
    assert by_kind(found)["uplinks"] == 0
    assert lines["cloud"].deviation == pytest.approx(share * sqrt(50))
    # A device knows its own part; servers between hand on what the cloud broadcasts.
    for kind in ("siblings", "far_devices"):
        assert lines[kind].deviation == pytest.approx(share * sqrt(49))
    assert lines["servers"].deviation == pytest.approx(share * sqrt(50))
    # All devices together are left with one part.
    nosy = mechanism_of(ALL_DEVICES, {"threat.distrusted": ["cloud", "far_devices"]})
    assert nosy.ledger.pooled(200) > 5 * nosy.epsilon(200)
    assert found.ledger.pooled(200) == found.epsilon(200)


def test_members_of_a_sum_are_learners_of_their_own_while_no_step_is_theirs_alone():
    """With one step a round heads have no time to act on their part; with two they must not."""
    for steps, nodes in ((1, 10), (2, 1)):
        changes = {"training.local_steps": steps, "training.rounds": 4}
        assert len(mechanism_of(SHARED, changes).lock_step.nodes) == nodes
    silent = {"secure_aggregation.dropout": 0.1, "training.rounds": 4}
    assert len(mechanism_of(SHARED, silent).lock_step.nodes) == 1
