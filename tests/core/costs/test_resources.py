"""Energy and delay of one round, worked by hand."""

import numpy as np
import pytest

from m2fdp.core.config import ResourcesConfig, TrainingConfig
from m2fdp.core.costs.resources import Links, link_cost, watts
from m2fdp.core.privacy.mechanisms import step_alone, step_together
from m2fdp.core.schedule.schedule import build_schedule
from m2fdp.core.topology.builders import tree_from_edges, tree_from_fanouts
from m2fdp.core.topology.network import Network, Participation, noise_plan
from m2fdp.core.topology.trust import all_untrusted, explicit_trust

M = 7840
WIRELESS_S = M * 32 / 35e6
WIRED_S = M * 32 / 100e6
WIRELESS_J = 0.251188643 * WIRELESS_S  # 24 dBm
WIRED_J = 6.30957344 * WIRED_S  # 38 dBm
WIDE, SMALL = tree_from_fanouts([10, 5]), tree_from_fanouts([2, 3])


def cost_of(tree, local_steps=1, trust=None, uplinks="sequential", every=None, **changes):
    """What a round costs; where servers are trusted, devices step together."""
    servers = trust or all_untrusted(tree)
    network = Network(tree, servers, noise_plan(tree, servers), **changes)
    lock_step = step_together(network) if trust else step_alone(network)
    config = TrainingConfig(
        rounds=1, local_steps=local_steps, learning_rate=1, local_aggregation=every
    )
    layers = build_schedule(config, tree.depth).layers()
    return Links(network, lock_step, M, ResourcesConfig(uplinks=uplinks)).round(layers)


def test_units():
    assert watts(30) == 1.0
    assert watts(24) == pytest.approx(0.251188643)
    wireless = link_cost(2, 32 * M, ResourcesConfig())
    assert wireless.delay_s == pytest.approx(WIRELESS_S)
    assert wireless.energy_j == pytest.approx(WIRELESS_J)
    assert link_cost(1, 32 * M, ResourcesConfig()).energy_j == pytest.approx(WIRED_J)


def test_default_network_with_local_aggregation_every_five():
    cost = cost_of(WIDE, 20, every={1: 5})
    # Local aggregations at 5, 10, 15; the global one at 20 passes both layers.
    assert cost.energy_j == pytest.approx(20 * 50 * 1e-3 + 4 * 50 * WIRELESS_J + 10 * WIRED_J)
    assert cost.delay_s == pytest.approx(20 * 0.2 + 4 * 5 * WIRELESS_S + 10 * WIRED_S)


def test_parallel_uplinks_wait_for_one_message_a_layer():
    cost = cost_of(WIDE, 20, uplinks="parallel")
    assert cost.delay_s == pytest.approx(20 * 0.2 + WIRELESS_S + WIRED_S)


def test_lock_step_costs_a_message_a_step_and_none_at_the_aggregation():
    cost = cost_of(SMALL, 4, explicit_trust(SMALL, []))
    assert cost.energy_j == pytest.approx(4 * 6 * 1e-3 + 4 * 6 * WIRELESS_J + 2 * WIRED_J)
    assert cost.delay_s == pytest.approx(4 * (0.2 + 3 * WIRELESS_S) + 2 * WIRED_S)


def test_groups_that_work_side_by_side_are_waited_for_once():
    """A is trusted: its devices send at every step. B's send models at the last step only."""
    cost = cost_of(SMALL, 2, explicit_trust(SMALL, ["server-1-1"]))
    assert cost.energy_j == pytest.approx(2 * 6 * 1e-3 + (2 * 3 + 3) * WIRELESS_J + 2 * WIRED_J)
    assert cost.delay_s == pytest.approx(2 * (0.2 + 3 * WIRELESS_S) + 2 * WIRED_S)


def test_only_participants_step_and_send():
    cost = cost_of(SMALL, participants=2)
    assert cost.energy_j == pytest.approx(4 * 1e-3 + 4 * WIRELESS_J + 2 * WIRED_J)
    assert cost.delay_s == pytest.approx(0.2 + 2 * WIRELESS_S + 2 * WIRED_S)


def test_devices_that_join_by_chance_cost_as_many_as_are_expected():
    """0.3 of three devices of each server; the servers send whoever comes."""
    cost = cost_of(SMALL, participation=Participation(0.3, np.ones(6)))
    assert cost.energy_j == pytest.approx(1.8 * (1e-3 + WIRELESS_J) + 2 * WIRED_J)
    assert cost.delay_s == pytest.approx(0.2 + 0.9 * WIRELESS_S + 2 * WIRED_S)


def test_star_links_are_wired():
    cost = cost_of(tree_from_fanouts([4]))
    assert cost.energy_j == pytest.approx(4 * 1e-3 + 4 * WIRED_J)
    assert cost.delay_s == pytest.approx(0.2 + 4 * WIRED_S)


def test_a_ragged_tree_waits_for_its_slowest_branch():
    edges = [("c", "A"), ("c", "B"), ("A", "1"), ("A", "2"), ("A", "3"), ("B", "4")]
    cost = cost_of(tree_from_edges(edges))
    assert cost.delay_s == pytest.approx(0.2 + 3 * WIRELESS_S + 2 * WIRED_S)
