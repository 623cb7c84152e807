"""Energy and delay of one round, worked by hand."""

import numpy as np
import pytest

from m2fdp.config import PrivacyConfig, ResourcesConfig, ThreatConfig, TrainingConfig
from m2fdp.costs.resources import message_cost, round_cost, watts
from m2fdp.privacy.calibration import build_mechanism, no_privacy
from m2fdp.privacy.premises import Premises
from m2fdp.schedule.schedule import build_schedule
from m2fdp.topology.builders import tree_from_edges, tree_from_fanouts
from m2fdp.topology.network import Network, no_noise, noise_plan
from m2fdp.topology.participation import Participation
from m2fdp.topology.trust import all_untrusted, explicit_trust

GRADIENT = PrivacyConfig(epsilon=4, delta=1e-5, clipping_norm=1)
UPLOAD = PrivacyConfig(
    mechanism="upload", calibration="paper", epsilon=4, delta=1e-5, clipping_norm=1
)
M = 7840
WIRELESS_S = M * 32 / 35e6
WIRED_S = M * 32 / 100e6
WIRELESS_J = 0.251188643 * WIRELESS_S  # 24 dBm
WIRED_J = 6.30957344 * WIRED_S  # 38 dBm


def training(**changes):
    one_round = {"rounds": 1, "local_steps": 20, "learning_rate": 1, "local_aggregation": None}
    return TrainingConfig(**(one_round | changes))


def cost_of(tree, trust, schedule_config, privacy, resources=None):
    network = Network(tree, trust, noise_plan(tree, trust))
    sizes = np.full(tree.n_devices, 100)
    schedule = build_schedule(schedule_config, tree.depth)
    mechanism = build_mechanism(
        Premises(
            network, sizes, np.ones(tree.n_devices), schedule.round_plans(), privacy, ThreatConfig()
        )
    )
    return round_cost(
        network, mechanism.lock_step, schedule.layers(), M, resources or ResourcesConfig()
    )


def test_units():
    assert watts(30) == 1.0
    assert watts(24) == pytest.approx(0.251188643)
    wireless = message_cost(2, M, ResourcesConfig())
    assert wireless.delay_s == pytest.approx(WIRELESS_S)
    assert wireless.energy_j == pytest.approx(WIRELESS_J)
    assert message_cost(1, M, ResourcesConfig()).energy_j == pytest.approx(WIRED_J)


def test_default_network_with_local_aggregation_every_five():
    tree = tree_from_fanouts([10, 5])
    cost = cost_of(tree, all_untrusted(tree), training(local_aggregation={1: 5}), UPLOAD)
    # Local aggregations at 5, 10, 15; the global one at 20 passes both layers.
    assert cost.energy_j == pytest.approx(20 * 50 * 1e-3 + 4 * 50 * WIRELESS_J + 10 * WIRED_J)
    assert cost.delay_s == pytest.approx(20 * 0.2 + 4 * 5 * WIRELESS_S + 10 * WIRED_S)


def test_parallel_uplinks_wait_for_one_message_a_layer():
    tree = tree_from_fanouts([10, 5])
    cost = cost_of(
        tree, all_untrusted(tree), training(), UPLOAD, ResourcesConfig(uplinks="parallel")
    )
    assert cost.delay_s == pytest.approx(20 * 0.2 + WIRELESS_S + WIRED_S)


def test_lock_step_costs_a_message_a_step_and_none_at_the_aggregation():
    tree = tree_from_fanouts([2, 3])
    cost = cost_of(tree, explicit_trust(tree, []), training(local_steps=4), GRADIENT)
    assert cost.energy_j == pytest.approx(4 * 6 * 1e-3 + 4 * 6 * WIRELESS_J + 2 * WIRED_J)
    assert cost.delay_s == pytest.approx(4 * (0.2 + 3 * WIRELESS_S) + 2 * WIRED_S)


def test_groups_that_work_side_by_side_are_waited_for_once():
    """A is trusted: its devices send at every step. B's send models at the last step only."""
    tree = tree_from_fanouts([2, 3])
    trust = explicit_trust(tree, ["server-1-1"])
    cost = cost_of(tree, trust, training(local_steps=2), GRADIENT)
    assert cost.energy_j == pytest.approx(2 * 6 * 1e-3 + (2 * 3 + 3) * WIRELESS_J + 2 * WIRED_J)
    assert cost.delay_s == pytest.approx(2 * (0.2 + 3 * WIRELESS_S) + 2 * WIRED_S)


def test_only_participants_step_and_send():
    tree = tree_from_fanouts([2, 3])
    network = Network(tree, all_untrusted(tree), no_noise(tree), participants=2)
    schedule = build_schedule(training(local_steps=1), 2)
    lock_step = no_privacy(network, (), GRADIENT, ThreatConfig()).lock_step
    cost = round_cost(network, lock_step, schedule.layers(), M, ResourcesConfig())
    assert cost.energy_j == pytest.approx(4 * 1e-3 + 4 * WIRELESS_J + 2 * WIRED_J)
    assert cost.delay_s == pytest.approx(0.2 + 2 * WIRELESS_S + 2 * WIRED_S)


def test_devices_that_join_by_chance_cost_as_many_as_are_expected():
    """0.3 of three devices of each server; the servers send whoever comes."""
    tree = tree_from_fanouts([2, 3])
    participation = Participation(0.3, np.ones(6))
    network = Network(tree, all_untrusted(tree), no_noise(tree), participation=participation)
    schedule = build_schedule(training(local_steps=1), 2)
    lock_step = no_privacy(network, (), GRADIENT, ThreatConfig()).lock_step
    cost = round_cost(network, lock_step, schedule.layers(), M, ResourcesConfig())
    assert cost.energy_j == pytest.approx(1.8 * (1e-3 + WIRELESS_J) + 2 * WIRED_J)
    assert cost.delay_s == pytest.approx(0.2 + 0.9 * WIRELESS_S + 2 * WIRED_S)


def test_star_links_are_wired():
    tree = tree_from_fanouts([4])
    cost = cost_of(tree, all_untrusted(tree), training(local_steps=1), GRADIENT)
    assert cost.energy_j == pytest.approx(4 * 1e-3 + 4 * WIRED_J)
    assert cost.delay_s == pytest.approx(0.2 + 4 * WIRED_S)


def test_a_ragged_tree_waits_for_its_slowest_branch():
    edges = [("c", "A"), ("c", "B"), ("A", "1"), ("A", "2"), ("A", "3"), ("B", "4")]
    tree = tree_from_edges(edges)
    network = Network(tree, all_untrusted(tree), no_noise(tree))
    schedule = build_schedule(training(local_steps=1), 2)
    lock_step = no_privacy(network, (), GRADIENT, ThreatConfig()).lock_step
    cost = round_cost(network, lock_step, schedule.layers(), M, ResourcesConfig())
    assert cost.delay_s == pytest.approx(0.2 + 3 * WIRELESS_S + 2 * WIRED_S)
