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
from m2fdp.tiers.course import TreeTiers, billed_cuts, plan_tree_tiers, tree_course

MIB = 2.0**20
COSTS = costs_of_cuts(resnet_costs(56, 16), np.arange(1, 9))
WHOLE, MD1 = 522.40e6, 1.77e6  # FLOPs of a record, ResNet-56 (spec 1.2)


ONE_STEP, TWO_STEPS = RoundPlan((0,), 0.1), RoundPlan((None, 0), 0.1)


def network_of(trusted: list[bool], children: int, anyone: bool = False) -> Network:
    """A tree of edge servers; devices of the trusted ones split, or those of any."""
    config = Config.model_validate({"topology": {"fanouts": [len(trusted), children]}})
    tree = build_tree(config.topology)
    trust = (np.zeros(1, dtype=bool), np.array(trusted))
    splits = trust[1][tree.parents[1]] | anyone
    return Network(tree, trust, noise_plan(tree, trust), splits=splits)


def planned(network: Network, *plans: RoundPlan, clock=None, **tiering) -> TreeTiers:
    """Minibatches of 60 records; all devices of one profile, unless the clock says more."""
    fixed = {"noise": 0.0, "switch_every": None, "profiles": [[0.1, 10.0]]}
    return plan_tree_tiers(
        TieringConfig(**{"schedule": "oracle", **tiering}),
        ClockConfig(**fixed | (clock or {})),
        COSTS,
        network,
        step_together(network),
        np.full(network.tree.n_devices, 60.0),
        plans,
        seed=0,
    )


def test_a_device_that_does_not_split_computes_and_sends_its_model_at_the_rounds_end():
    tiers = planned(network_of([False], 3), RoundPlan((None, None, 0), 0.1))
    computing = 3 * 60 * WHOLE * 250 / 34 / 150e9
    sending = 2 * 4 * (591_322 + 8_992) / (10 * MIB)
    assert (tiers.tiers == 8).all()
    assert tiers.took.max(axis=1)[0] == pytest.approx(computing + sending, rel=1e-4)
    assert tiers.sending[0] == pytest.approx(3 * sending)
    assert tiers.computing[0] == pytest.approx(3 * 3)


def test_a_device_in_tier_1_sends_its_minibatch_and_its_part_at_every_step():
    tiers = planned(network_of([True], 2), TWO_STEPS)
    step = max(60 * (MD1 + 6 * 16 * 10) * 250 / 34 / 150e9, 60 * (WHOLE - MD1) / 350e9)
    step += (60 * (65_536 + 8) + 2 * 4 * (464 + 32 + 170)) / (10 * MIB)
    assert (tiers.tiers == 1).all()
    assert tiers.took.max(axis=1)[0] == pytest.approx(2 * step, rel=1e-3)


def test_whoever_steps_alone_sends_its_part_when_models_are_aggregated_only():
    joint = planned(network_of([True], 2), TWO_STEPS)
    separate = planned(network_of([False], 2, anyone=True), TWO_STEPS)
    part = 2 * 4 * (464 + 32 + 170) / (10 * MIB)
    assert separate.took.max() == pytest.approx(joint.took.max() - part, rel=1e-9)


def test_one_device_that_may_not_split_is_what_others_are_given_time_for():
    """T_max is its time, and everybody else takes the highest tier within it."""
    both, only_trusted, separate = (
        planned(network_of(trusted, 3), ONE_STEP) for trusted in ([True, False], [True], [False])
    )
    assert (both.tiers[0, 3:] == 8).all()
    assert (both.tiers[0, :3] >= only_trusted.tiers[0]).all()
    assert both.took.max() == pytest.approx(separate.took.max())


def test_a_shared_server_trains_its_own_children_one_after_the_other(monkeypatch):
    monkeypatch.setattr(ClockConfig, "server_gflops", 1.0)
    network, tier = network_of([True, True], 5), {"schedule": "static", "static_tier": 1}
    unlimited, five = (
        planned(network, ONE_STEP, clock={"server": server}, **tier)
        for server in ("unlimited", "shared")
    )
    server = 60 * (WHOLE - MD1) / 1e9
    assert five.took.max() - unlimited.took.max() == pytest.approx(4 * server, rel=1e-3)


def test_a_dynamic_schedule_learns_the_oracles_tiers_after_a_round():
    network = network_of([True, True], 5)
    profiles = {"profiles": [[4.0, 100.0], [1.0, 30.0], [0.1, 10.0]]}
    dynamic_plan, best = (
        planned(network, *[ONE_STEP] * 3, clock=profiles, schedule=schedule)
        for schedule in ("dynamic", "oracle")
    )
    assert (dynamic_plan.tiers[0] == 1).all()
    np.testing.assert_array_equal(dynamic_plan.tiers[1:], best.tiers[1:])


def test_the_servers_links_come_after_the_slowest_device():
    network, plans, resources = network_of([True, True], 2), (ONE_STEP,) * 2, ResourcesConfig()
    tiers = planned(network, *plans)
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
    tiers = planned(network_of([True], 2), ONE_STEP, tiers=3)
    assert tiers.tiers.min() >= 5
    whole = planned(network_of([True], 2), ONE_STEP, tiers=1, whole_model=True)
    assert set(whole.tiers.ravel()) <= {7, 8}
