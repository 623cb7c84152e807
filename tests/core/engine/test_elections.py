"""Who is elected when: uniform over those on line, by streams of its own, and nobody who is silent.

All seeds are fixed, so each of these tests either fails always or never; the rates in the comments
say how likely a correct build was to fail when the seeds were chosen.
"""

from dataclasses import replace

import numpy as np
import pytest
from tests.builders import experiment_of

from m2fdp.core.engine.minibatches import draw_participants
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import KeyedStreams
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, Participation, SecureSums, noise_plan
from m2fdp.core.topology.trust import all_untrusted
from m2fdp.given.edges import tree_from_edges
from m2fdp.secure_aggregation.rounds import draw_survivors
from m2fdp.zones.lots import elect
from m2fdp.zones.offices import draw_offices, draw_super_nodes

STREAMS = KeyedStreams(0)


def network_of(tree, **changes):
    tree = tree_from_fanouts(tree) if isinstance(tree, list) else tree
    trust = all_untrusted(tree)
    return Network(tree, trust, noise_plan(tree, trust), members_serve=True, **changes)


def plans_of(rounds, steps=1):
    return (RoundPlan((*[None] * (steps - 1), 0), 0.1),) * rounds


def everybody(network):
    return np.ones(network.tree.n_devices, dtype=bool)


def test_every_zone_elects_one_of_its_own_by_the_protocol():
    edges = [("c", "A"), ("c", "B"), ("c", "C"), *(("A", str(i)) for i in range(5))]
    tree = tree_from_edges([*edges, ("B", "5"), ("B", "6"), ("C", "7")])
    network = network_of(tree)
    present = everybody(network)
    present[[5, 6]] = False
    for round_ in range(1, 20):
        nonces = STREAMS.generator("election", round_, 0).bytes
        drawn = draw_super_nodes(network, present, STREAMS, round_)
        assert drawn.tolist() == [elect(range(5), nonces).leader, -1, 7]


def test_offices_are_those_of_training():
    """Present are those who join in training, by the same stream."""
    network = network_of([2, 6], participation=Participation(0.4, np.ones(12)))
    offices = draw_offices(network, STREAMS, plans_of(40), coalition=2)
    for row, leaders, round_ in zip(offices.present, offices.leaders, range(1, 41), strict=True):
        assert (row == draw_participants(network, STREAMS, round_)).all()
        for zone, leader in enumerate(leaders):
            on_line = np.flatnonzero(row & (offices.zones == zone))
            assert leader in on_line if on_line.size else leader == -1


def test_who_falls_silent_does_not_serve():
    """Silent in the sum that ends the round: of two steps, the second."""
    sums = SecureSums(frozenset({2}), dropout=0.3)
    network = network_of([2, 5], sums=sums)
    offices = draw_offices(network, STREAMS, plans_of(60, steps=2), coalition=1)
    served = 0
    for round_, leaders in enumerate(offices.leaders, start=1):
        # Groups that are lost have lost all, so that thresholds of one keep every survivor.
        changed = replace(network, sums=replace(sums, threshold=1))
        alive = draw_survivors(changed, everybody(network), STREAMS, (round_, 2))[2]
        for leader in leaders[leaders >= 0]:
            assert alive[leader]
            served += 1
    assert served > 100
    never = draw_offices(network_of([2, 5]), STREAMS, plans_of(60, steps=2), coalition=1)
    assert (never.leaders != offices.leaders).any()


def test_elections_have_streams_of_their_own():
    """Whoever else is there, a zone elects the same."""
    network = network_of([3, 4])
    present = everybody(network)
    first = draw_super_nodes(network, present, STREAMS, 7)
    present[:8] = False
    assert draw_super_nodes(network, present, STREAMS, 7)[2] == first[2]


@pytest.mark.parametrize("algorithm", ["hfl", "hfl_dp"])
def test_elections_change_no_other_draw(algorithm):
    """Without noise, which is keyed by all that is configured, training is the same to the bit."""
    base = {"algorithm": algorithm, "training.rounds": 3, "topology.fanouts": [3, 4]}
    fixed = experiment_of(base)
    elected = experiment_of(base, {"topology.super_nodes.kind": "elected"})
    assert elected.network.members_serve and not fixed.network.members_serve
    if algorithm == "hfl":
        metrics = [one.train().metrics[["accuracy", "loss"]] for one in (fixed, elected)]
        assert metrics[0].equals(metrics[1])
        assert elected.elections()["served"].sum() == 3 * 3 and fixed.elections().empty
    else:
        noises = [one.calibrate().mechanism.noise.steps for one in (fixed, elected)]
        assert np.array_equal(*noises)
