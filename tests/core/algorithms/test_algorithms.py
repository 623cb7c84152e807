"""Algorithms as data: tree, trust, noise and schedule."""

import numpy as np
import pytest

from m2fdp.core.algorithms import ALGORITHMS, Algorithm, Plan, build_plan, get_algorithm
from m2fdp.core.config import Config, TopologyConfig, TrainingConfig, TrustConfig
from m2fdp.core.errors import InputError
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_untrusted

TOPOLOGY = TopologyConfig(fanouts=[4, 3], trust=TrustConfig(ratios=[0.5]))
TRAINING = TrainingConfig(rounds=2, local_steps=4, learning_rate=1, local_aggregation={1: 2})


def plan_of(name, topology=TOPOLOGY):
    return build_plan(Config(algorithm=name, topology=topology, training=TRAINING))


def noisy(plan):
    return [int(noise.sum()) for noise in plan.network.noise]


def test_the_four_rows_of_the_design():
    assert noisy(plan_of("hfl")) == [0, 0, 0]
    assert not plan_of("hfl").private
    assert noisy(plan_of("hfl_dp")) == [0, 0, 12]
    assert noisy(plan_of("m2fdp")) == [0, 2, 6]
    assert noisy(plan_of("pedpfl")) == [0, 12]
    assert plan_of("pedpfl").network.tree.depth == 1
    assert plan_of("pedpfl").schedule.aggregation_layer(2) is None
    assert plan_of("hfl_dp").schedule.aggregation_layer(2) == 1
    methods = [a.name for a in ALGORITHMS.values() if a.role == "method"]
    assert methods == ["m2fdp", "hdp", "hdp_mixed", "global_dp", "dtfl", "m2fdp_tiers"]


def test_without_trusted_servers_m2fdp_is_hfl_dp():
    nobody = TopologyConfig(fanouts=[4, 3], trust=TrustConfig(ratios=[0.0]))
    for one, other in zip(
        plan_of("m2fdp", nobody).network.noise, plan_of("hfl_dp").network.noise, strict=True
    ):
        np.testing.assert_array_equal(one, other)


def with_algorithm(monkeypatch, plan):
    monkeypatch.setitem(ALGORITHMS, "own", Algorithm("own", "Own", "method", plan))


def test_an_own_algorithm_that_leaves_devices_in_clear_is_refused(monkeypatch):
    """Its servers noise what they send, but nobody hides what they receive."""

    def plan(given):
        noise = (np.zeros(1), np.ones(4), np.zeros(12))
        network = Network(given.tree, all_untrusted(given.tree), noise)
        return Plan(network, given.schedule, private=True)

    with_algorithm(monkeypatch, plan)
    with pytest.raises(InputError, match="algorithm = 'own': .*12 devices, such as device-0"):
        plan_of("own")


def test_an_own_algorithm_whose_trusted_cloud_adds_no_noise_is_refused(monkeypatch):
    def plan(given):
        tree = given.tree
        everybody = tuple(np.ones(tree.n_nodes(n), dtype=bool) for n in range(tree.depth))
        noise = (np.zeros(1), *noise_plan(tree, everybody)[1:])
        return Plan(Network(tree, everybody, noise), given.schedule, private=True)

    with_algorithm(monkeypatch, plan)
    with pytest.raises(InputError, match="12 devices, such as device-0, .* without noise"):
        plan_of("own")


def test_unknown_algorithm():
    with pytest.raises(InputError, match="algorithm = 'fedprox': .*hfl, pedpfl, hfl_dp, m2fdp"):
        get_algorithm("fedprox")
