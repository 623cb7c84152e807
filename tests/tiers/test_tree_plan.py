"""Tiers and seconds below the servers of a tree, by hand."""

import numpy as np
import pytest

from m2fdp.core.config import Config
from m2fdp.core.privacy.mechanisms import step_together
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.builders import build_tree
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.costs.config import ResourcesConfig
from m2fdp.costs.resources import Links, totals, watts
from m2fdp.tiers.clock import costs_of_cuts, resnet_costs
from m2fdp.tiers.config import ClockConfig, TieringConfig
from m2fdp.tiers.course import billed_cuts, plan_tree_tiers, tree_course

MIB = 2.0**20
COSTS = costs_of_cuts(resnet_costs(56, 16), np.arange(1, 9), 8.0)
WHOLE, MD1 = 522.40e6, 1.77e6  # FLOPs of a record, ResNet-56 (spec 1.2)


def world(trusted: list[bool], children: int, **profiles):
    """A tree of edge servers, those trusted whose devices split; all devices of one profile."""
    config = Config.model_validate({"topology": {"fanouts": [len(trusted), children]}})
    tree = build_tree(config.topology)
    trust = (np.zeros(1, dtype=bool), np.array(trusted))
    splits = trust[1][tree.parents[1]]
    network = Network(tree, trust, noise_plan(tree, trust), splits=splits)
    clock = ClockConfig(
        **{"noise": 0.0, "switch_every": None, "profiles": [[0.1, 10.0]], **profiles}
    )
    return network, clock


def planned(network, clock, plans, minibatch=60.0, **tiering):
    return plan_tree_tiers(
        TieringConfig(**{"schedule": "oracle", **tiering}),
        clock,
        COSTS,
        network,
        step_together(network),
        np.full(network.tree.n_devices, minibatch),
        plans,
        seed=0,
    )


def test_a_device_that_does_not_split_computes_and_sends_its_model_at_the_rounds_end():
    network, clock = world([False], 3)
    plans = (RoundPlan((None, None, 0), 0.1),)
    tiers = planned(network, clock, plans)
    computing = 3 * 60 * WHOLE * 250 / 34 / 150e9
    sending = 2 * 4 * (591_322 + 8_992) / (10 * MIB)
    assert (tiers.tiers == 8).all()
    assert tiers.took.max(axis=1)[0] == pytest.approx(computing + sending, rel=1e-4)
    assert tiers.sending[0] == pytest.approx(3 * sending)
    assert tiers.computing[0] == pytest.approx(3 * 3)


def test_a_device_in_tier_1_sends_its_minibatch_and_its_part_at_every_step():
    network, clock = world([True], 2)
    plans = (RoundPlan((None, 0), 0.1),)
    tiers = planned(network, clock, plans)
    step = max(60 * (MD1 + 6 * 16 * 10) * 250 / 34 / 150e9, 60 * (WHOLE - MD1) / 350e9)
    step += (60 * (65_536 + 8) + 2 * 4 * (464 + 32 + 170)) / (10 * MIB)
    assert (tiers.tiers == 1).all()
    assert tiers.took.max(axis=1)[0] == pytest.approx(2 * step, rel=1e-3)


def test_whoever_steps_alone_sends_its_part_when_models_are_aggregated_only():
    network, clock = world([False], 2)
    everybody = np.ones(2, dtype=bool)
    anyone = Network(network.tree, network.trust, network.noise, splits=everybody)
    plans = (RoundPlan((None, 0), 0.1),)
    joint = planned(world([True], 2)[0], clock, plans)
    separate = planned(anyone, clock, plans)
    part = 2 * 4 * (464 + 32 + 170) / (10 * MIB)
    assert separate.took.max() == pytest.approx(joint.took.max() - part, rel=1e-9)


def test_one_device_that_may_not_split_is_what_others_are_given_time_for():
    """T_max is its time, and everybody else takes the highest tier within it."""
    network, clock = world([True, False], 3)
    plans = (RoundPlan((0,), 0.1),)
    both = planned(network, clock, plans)
    only_trusted = planned(world([True], 3)[0], clock, plans)
    assert (both.tiers[0, 3:] == 8).all()
    assert (both.tiers[0, :3] >= only_trusted.tiers[0]).all()
    separate = planned(world([False], 3)[0], clock, plans)
    assert both.took.max() == pytest.approx(separate.took.max())


def test_a_shared_server_trains_its_own_children_one_after_the_other(monkeypatch):
    monkeypatch.setattr(ClockConfig, "server_gflops", 1.0)
    network, clock = world([True, True], 5)
    shared = clock.model_copy(update={"server": "shared"})
    plans = (RoundPlan((0,), 0.1),)
    static_plan = planned(network, clock, plans, schedule="static", static_tier=1)
    five = planned(network, shared, plans, schedule="static", static_tier=1)
    server = 60 * (WHOLE - MD1) / 1e9
    assert five.took.max() - static_plan.took.max() == pytest.approx(4 * server, rel=1e-3)


def test_a_dynamic_schedule_learns_the_oracles_tiers_after_a_round():
    network, clock = world([True, True], 5, profiles=[[4.0, 100.0], [1.0, 30.0], [0.1, 10.0]])
    plans = (RoundPlan((0,), 0.1),) * 3
    dynamic_plan = planned(network, clock, plans, schedule="dynamic")
    best = planned(network, clock, plans)
    assert (dynamic_plan.tiers[0] == 1).all()
    np.testing.assert_array_equal(dynamic_plan.tiers[1:], best.tiers[1:])


def test_the_servers_links_come_after_the_slowest_device():
    network, clock = world([True, True], 2)
    plans = (RoundPlan((0,), 0.1),) * 2
    tiers, resources = planned(network, clock, plans), ResourcesConfig()
    links = [Links(network, step_together(network), 7840, resources)]
    course = tree_course(tiers, links, plans, resources)
    costs = totals(course.costs)
    wired = 2 * 7840 * 32 / 100e6  # two servers, one after the other
    assert costs[1].delay_s == pytest.approx(tiers.took.max(axis=1).sum() + 2 * wired)
    energy = watts(24) * tiers.sending[0] + 1e-3 * tiers.computing[0] + watts(38) * wired
    assert costs[0].energy_j == pytest.approx(energy)
    assert course.logged[1]["round_s"] == pytest.approx(tiers.took.max(axis=1)[1] + wired)
    assert sum(course.logged[0][f"tier_{tier}"] for tier in range(1, tiers.tiers.max() + 1)) == 4


@pytest.mark.parametrize(("n_cuts", "cuts"), [(7, [1, 2, 3, 4, 5, 6, 7]), (3, [1, 4, 7]), (1, [1])])
def test_cuts_of_another_model_are_spread_over_the_billed_ones(n_cuts, cuts):
    assert billed_cuts(resnet_costs(56, 16), n_cuts).tolist() == cuts


def test_the_last_tiers_alone_are_offered():
    network, clock = world([True], 2)
    tiers = planned(network, clock, (RoundPlan((0,), 0.1),), tiers=3)
    assert tiers.tiers.min() >= 5
    whole = planned(network, clock, (RoundPlan((0,), 0.1),), tiers=1, whole_model=True)
    assert set(whole.tiers.ravel()) <= {7, 8}
