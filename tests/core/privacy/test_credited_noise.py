"""What the ledger credits, against what an observer can really be without: noise of sums that are
lost, weights of those who came, links above a masked one."""

from dataclasses import replace

import numpy as np
import pytest
from tests.builders import experiment_of

from m2fdp.secure_aggregation.rounds import draw_survivors

BASE = {
    "topology.fanouts": [4, 6],
    "training.rounds": 10,
    "training.local_steps": 1,
    "training.local_aggregation": None,
    "training.batch_size": None,
    "model.name": "softmax",
    "privacy.mechanism": "upload",
    "privacy.unit": "device",
    "privacy.epsilon": 8.0,
}
TWICE = {"privacy.calibration": "multiplier", "privacy.noise_multiplier": 2.0}
ZONES = {"algorithm": "hfl_dp", "secure_aggregation.layers": [2]}
# The cloud is trusted and adds noise, and so do half the devices of every zone.
HALF_OF_THE_DEVICES = {
    "algorithm": "hdp_mixed",
    "zones.device_noise": 0.5,
    "zones.device_noise_of": "devices",
    "zones.server_noise": 0.0,
    "zones.cloud_noise": True,
}


def ledger_of(experiment):
    return experiment.calibrate().mechanism.ledger


def noise_of_rounds(experiment):
    """The deviation, over eta, of what every round moves the global model by, without data."""
    simulation = experiment.simulation()
    (mechanism,) = simulation.mechanisms
    clipping = replace(mechanism.clipping, update_norm=1e-12)
    simulation = replace(simulation, mechanisms=(replace(mechanism, clipping=clipping),))
    process = experiment.process(simulation)
    state, found = process.start(), []
    for plan in experiment.run_plan.rounds:
        after = process.round(state, plan)
        found.append(float((after.weights - state.weights).double().std()) / plan.step_size)
        state = after
    return np.array(found)


def test_noise_of_lost_sums_is_not_credited():
    """A round in which one zone's sum alone is read has this zone's noise, and the cloud's."""
    sums = {"secure_aggregation.layers": [2], "secure_aggregation.dropout": 0.3}
    experiment = experiment_of(BASE, TWICE, HALF_OF_THE_DEVICES, sums, {"training.rounds": 25})
    found = noise_of_rounds(experiment)
    drawn = experiment.network, np.ones(24, dtype=bool), experiment.simulation().randomness.sampling
    read = [draw_survivors(*drawn, (number, 1))[2].any() for number in range(1, 26)]
    assert found[read].min() == pytest.approx(0.1443, rel=0.1)  # 0.25 if no zone is lost
    for line in ledger_of(experiment).lines:
        if line.kind == "public":
            # 650 numbers tell a deviation to 3 %: false alarm below 1e-3 in 25 rounds.
            credited = line.deviation * line.position.unit
            assert credited <= found[read].min() * 1.1


def test_the_weights_of_a_clipped_sum_are_those_of_who_came(tmp_path):
    """Zones of two and of ten devices, all there: each message counts with a half, or a tenth."""
    rows = [("cloud", "a"), ("cloud", "b"), *(("a" if i < 2 else "b", f"d{i}") for i in range(12))]
    edges = tmp_path / "edges.csv"
    edges.write_text("parent,child\n" + "".join(f"{up},{down}\n" for up, down in rows))
    changes = {"topology.edges": str(edges), "secure_aggregation.decode": "cloud"}
    changes |= {"training.estimator": "clipped", "training.least_weight": 1.0}
    experiment = experiment_of({**BASE, "topology.fanouts": None}, TWICE, ZONES, changes)
    found = noise_of_rounds(experiment).mean()
    for line in ledger_of(experiment).lines:
        if line.kind == "cloud":
            in_zone = 1 / 2 if line.position.members[0] < 2 else 1 / 10
            credited = line.deviation * line.position.unit * in_zone / 2
            assert credited == pytest.approx(found, rel=0.05)


@pytest.mark.parametrize("estimator", ["fixed", "clipped"])
def test_others_noise_that_counts_less_shows_who_joined(estimator):
    """Under `clipped` the rounds that a device joined count, also where it adds no noise."""
    changes = {"training.participation": 0.2, "training.estimator": estimator}
    changes |= {"training.least_weight": 3.0} if estimator == "clipped" else {}
    experiment = experiment_of(BASE, TWICE, HALF_OF_THE_DEVICES, changes)
    silent = set(np.flatnonzero(experiment.network.noise[2] == 0).tolist())
    lines = [x for x in ledger_of(experiment).lines if x.kind == "public"]
    unseen = {line.joins_unseen for line in lines if silent & set(line.position.members)}
    assert unseen == {estimator == "fixed"}


def test_colluders_of_the_zone_tell_who_joined():
    changes = {"training.participation": 0.2, "threat.colluding": 1}
    experiment = experiment_of(BASE, TWICE, HALF_OF_THE_DEVICES, changes)
    lines = ledger_of(experiment).lines
    assert not any(line.joins_unseen for line in lines if line.kind == "colluders")


@pytest.mark.parametrize(
    ("layers", "decode", "masked"),
    [([2], "parent", False), ([1, 2], "parent", True), ([2], "cloud", True)],
)
@pytest.mark.parametrize("mechanism", ["upload", "gradient"])
def test_a_listener_hears_the_zones_sums_on_their_way_to_the_cloud(
    layers, decode, masked, mechanism
):
    sums = {"layers": layers, "decode": decode, "noise": "shared"}
    changes = {"privacy.mechanism": mechanism, "secure_aggregation": sums}
    experiment = experiment_of(BASE, ZONES, changes)
    found = ledger_of(experiment).by_kind(10)
    assert found["uplinks"] == (0 if masked else pytest.approx(found["public"]))
    assert found["public"] > 1


@pytest.mark.parametrize("participants", [None, 4])
def test_separate_noise_meets_the_target_where_senders_may_be_missing(participants):
    """Whoever reads sums only counts on the noise of fewer than all of its senders."""
    changes = {"secure_aggregation.dropout": 0.3, "training.participants": participants}
    changes |= {"threat.distrusted": ["cloud", "far_devices"]}
    experiment = experiment_of(BASE, ZONES, changes)
    assert 7.9 < experiment.calibrate().mechanism.epsilon(10) <= 8.0


def test_zones_have_no_table_where_their_noise_is_not_certain():
    for changes, rows in (({**ZONES, "secure_aggregation.dropout": 0.3}, False), (ZONES, True)):
        assert bool(len(experiment_of(BASE, changes).zones_table())) == rows
