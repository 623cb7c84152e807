"""Joules and seconds of sums that hide their terms, and of elections, worked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from m2fdp.core.privacy.mechanisms import step_alone, step_together
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, Participation, SecureSums, no_noise, noise_plan
from m2fdp.core.topology.trust import all_untrusted, explicit_trust
from m2fdp.costs.config import ResourcesConfig
from m2fdp.costs.resources import Links, message_bits
from m2fdp.given.edges import tree_from_edges
from m2fdp.zones.lots import ballot_bits

M = 1000
WIRELESS_W, WIRED_W = 10**-0.6, 10**0.8  # 24 and 38 dBm


def hidden(n):
    """Bits of one of n in a sum: M words; two keys of 32 bytes; n - 1 parcels of an id, two shares
    of 33 bytes and a tag of 16; n shares with an id. In bytes: 64 + 86 (n - 1) + 37 n."""
    return 32 * M + 8 * (64 + 86 * (n - 1) + 37 * n)


def wireless(bits):
    """Seconds at 35 Mbit/s."""
    return bits / 35e6


def wired(bits):
    """Seconds at 100 Mbit/s."""
    return bits / 100e6


def two_by_three(sums, trusted=False, **changes):
    tree = tree_from_fanouts([2, 3])
    trust = explicit_trust(tree, []) if trusted else all_untrusted(tree)
    return Network(tree, trust, noise_plan(tree, trust), sums=sums, **changes)


def cost_alone(network, layers, **resources):
    """Of a round in which no group moves in lock step."""
    return Links(network, step_alone(network), M, ResourcesConfig(**resources)).round(layers)


def cost_together(network, layers, **resources):
    """Of a round of the mechanism `gradient`."""
    return Links(network, step_together(network), M, ResourcesConfig(**resources)).round(layers)


# What servers send up for the cloud: what they have added, keys and shares of three members.
HANDED_ON = 32 * M + 3 * (hidden(6) - 32 * M)
# Layers of sums, how they are made, and the steps of a round; bits of a device's and of a server's
# message; how many travel, and for how many the round waits.
CASES = {
    "zones for their servers": ({2}, {}, (0,), hidden(3), 32 * M, (6, 2), (3, 2)),
    "devices for the cloud": ({2}, {"decode": "cloud"}, (0,), hidden(6), HANDED_ON, (6, 2), (3, 2)),
    "servers alone": ({1}, {}, (0,), 32 * M, hidden(2), (6, 2), (3, 2)),
    "every aggregation": ({1, 2}, {}, (1, 0), hidden(3), hidden(2), (12, 2), (6, 2)),
    "steps of zones": ({2}, {"shared": True}, (None, 0), hidden(3), 32 * M, (12, 2), (6, 2)),
    "steps of devices for the cloud": (
        *({2}, {"decode": "cloud", "shared": True}, (None, 0)),
        *(hidden(6), HANDED_ON, (12, 4), (6, 4)),
    ),
    # Devices send trusted servers gradients in every step, which nobody else reads.
    "steps of trusted servers": (
        *({1}, {"shared": True}, (None, 0)),
        *(32 * M, hidden(2), (12, 4), (6, 4)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_energy_and_delay_of_sums_by_hand(case):
    layers, kind, steps, device_bits, server_bits, sent, in_turn = CASES[case]
    network = two_by_three(SecureSums(frozenset(layers), **kind), trusted="trusted" in case)
    cost = (cost_together if "shared" in kind else cost_alone)(network, steps)
    device, server = wireless(device_bits), wired(server_bits)
    joules = WIRELESS_W * sent[0] * device + WIRED_W * sent[1] * server
    assert cost.energy_j == pytest.approx(6 * len(steps) * 1e-3 + joules, rel=1e-12)
    seconds = in_turn[0] * device + in_turn[1] * server
    assert cost.delay_s == pytest.approx(len(steps) * 0.2 + seconds, rel=1e-12)


def test_parallel_uplinks_wait_for_the_longest_message():
    """The cloud's children have three members and one; the first hands on more."""
    edges = [("c", "A"), ("c", "B"), ("A", "1"), ("A", "2"), ("A", "3"), ("B", "4")]
    tree = tree_from_edges(edges)
    sums = SecureSums(frozenset({2}), decode="cloud")
    network = Network(tree, all_untrusted(tree), no_noise(tree), sums=sums)
    cost = cost_alone(network, (0,), uplinks="parallel")
    overhead = hidden(4) - 32 * M
    device, longest = wireless(hidden(4)), wired(32 * M + 3 * overhead)
    assert cost.delay_s == pytest.approx(0.2 + device + longest, rel=1e-12)
    on_wires = longest + wired(32 * M + overhead)
    joules = 4e-3 + WIRELESS_W * 4 * device + WIRED_W * on_wires
    assert cost.energy_j == pytest.approx(joules, rel=1e-12)


def test_only_those_who_take_part_share_keys():
    sums = SecureSums(frozenset({2}), decode="cloud")
    network = two_by_three(sums, participants=2)
    device, server = wireless(hidden(4)), wired(32 * M + 2 * (hidden(4) - 32 * M))
    cost = cost_alone(network, (0,))
    joules = 4e-3 + WIRELESS_W * 4 * device + WIRED_W * 2 * server
    assert cost.energy_j == pytest.approx(joules, rel=1e-12)
    assert cost.delay_s == pytest.approx(0.2 + 2 * device + 2 * server, rel=1e-12)


def test_devices_by_chance_cost_what_is_expected():
    """Means over every set of devices that may join, by its probability."""
    rate = 0.3
    by_chance = Participation(rate, np.ones(6))
    sums = SecureSums(frozenset({2}), decode="cloud")
    network = two_by_three(sums, participation=by_chance, members_serve=True)
    masked = ballots = 0.0
    for joined in np.ndindex(*[2] * 6):
        joined = np.array(joined, dtype=bool)
        chance = np.prod(np.where(joined, rate, 1 - rate))
        total = joined.sum()
        masked += chance * (total * hidden(total) if total else 0)
        # A commitment and a nonce of 32 bytes from each to each other.
        of_zones = (joined[:3].sum(), joined[3:].sum())
        ballots += chance * sum(8 * 64 * k * (k - 1) for k in of_zones)
    _, devices = message_bits(network, M, ResourcesConfig())
    assert rate * devices.sum() == pytest.approx(masked)
    assert rate * ballot_bits(network).sum() == pytest.approx(ballots)
    on_wires = wired(2 * 32 * M + masked - 6 * rate * 32 * M)
    joules = 6 * rate * 1e-3 + WIRELESS_W * wireless(masked + ballots) + WIRED_W * on_wires
    assert cost_alone(network, (0,)).energy_j == pytest.approx(joules)


@pytest.mark.parametrize(("uplinks", "in_turn"), [("sequential", 3), ("parallel", 1)])
def test_elections_are_held_once_a_round(uplinks, in_turn):
    """Each of three devices sends a commitment and a nonce of 32 bytes to each of the others."""
    network = two_by_three(SecureSums())
    plain = cost_alone(network, (None, 0), uplinks=uplinks)
    cost = cost_alone(replace(network, members_serve=True), (None, 0), uplinks=uplinks)
    ballots = wireless(2 * 2 * 32 * 8)
    assert cost.energy_j - plain.energy_j == pytest.approx(WIRELESS_W * 6 * ballots, rel=1e-9)
    assert cost.delay_s - plain.delay_s == pytest.approx(in_turn * ballots, rel=1e-9)
    assert ballot_bits(replace(network, members_serve=True)).sum() == 2 * 8 * 64 * 3 * 2
