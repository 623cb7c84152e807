"""Energy and delay of one round, worked by hand."""

import numpy as np
import pytest

from m2fdp.core.config import TrainingConfig
from m2fdp.core.privacy.mechanisms import step_alone, step_together
from m2fdp.core.schedule.schedule import build_schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, Participation, noise_plan
from m2fdp.core.topology.trust import all_untrusted, explicit_trust
from m2fdp.costs.config import ResourcesConfig
from m2fdp.costs.resources import Links, link_cost, watts
from m2fdp.given.edges import tree_from_edges

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


EDGES = [("c", "A"), ("c", "B"), ("A", "1"), ("A", "2"), ("A", "3"), ("B", "4")]
# Joules and seconds of local steps, and messages on the air and on wires: all, and in turn.
CASES = {
    # Local aggregations at 5, 10, 15; the global one at 20 passes both layers.
    "every five steps": (
        {"tree": WIDE, "local_steps": 20, "every": {1: 5}},
        *((20 * 50e-3, 4 * 50, 10), (20 * 0.2, 4 * 5, 10)),
    ),
    "parallel uplinks": (
        {"tree": WIDE, "local_steps": 20, "uplinks": "parallel"},
        *((20 * 50e-3, 50, 10), (20 * 0.2, 1, 1)),
    ),
    # Lock step costs a message a step, and none at the aggregation.
    "lock step": (
        {"tree": SMALL, "local_steps": 4, "trust": explicit_trust(SMALL, [])},
        *((4 * 6e-3, 4 * 6, 2), (4 * 0.2, 4 * 3, 2)),
    ),
    # A is trusted: its devices send at every step. B's send models at the last step only.
    "groups side by side": (
        {"tree": SMALL, "local_steps": 2, "trust": explicit_trust(SMALL, ["server-1-1"])},
        *((2 * 6e-3, 2 * 3 + 3, 2), (2 * 0.2, 2 * 3, 2)),
    ),
    "participants": ({"tree": SMALL, "participants": 2}, (4e-3, 4, 2), (0.2, 2, 2)),
    # 0.3 of three devices of each server; the servers send whoever comes.
    "by chance": (
        {"tree": SMALL, "participation": Participation(0.3, np.ones(6))},
        *((1.8e-3, 1.8, 2), (0.2, 0.9, 2)),
    ),
    "a star's links are wired": ({"tree": tree_from_fanouts([4])}, (4e-3, 0, 4), (0.2, 0, 4)),
    "the slowest branch": ({"tree": tree_from_edges(EDGES)}, (4e-3, 4, 2), (0.2, 3, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_energy_and_delay_by_hand(case):
    changes, joules, seconds = CASES[case]
    cost = cost_of(**changes)
    assert cost.energy_j == pytest.approx(np.dot(joules, (1, WIRELESS_J, WIRED_J)))
    assert cost.delay_s == pytest.approx(np.dot(seconds, (1, WIRELESS_S, WIRED_S)))
