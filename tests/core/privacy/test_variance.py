"""The one recursion: against sums of single noises."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from m2fdp.core.privacy.variance import certain_inside, family_variance, mean_variances
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, SecureSums, noise_plan, readers, sample_weights
from m2fdp.core.topology.trust import all_trusted, all_untrusted


@st.composite
def networks(draw):
    """A network and a generator: uniform weights and some devices, or weights by sample count."""
    fanouts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    tree = tree_from_fanouts(fanouts)
    drawn = np.random.default_rng(draw(st.integers(0, 99)))
    rho = participants = None
    if draw(st.booleans()):
        rho = sample_weights(tree, drawn.integers(1, 9, tree.n_devices))
    elif draw(st.booleans()):
        participants = draw(st.integers(1, 4))
    trust = all_untrusted(tree)
    return Network(tree, trust, noise_plan(tree, trust), participants, rho), drawn


def random_deviations(network, drawn):
    tree = network.tree
    return [drawn.exponential(size=tree.n_nodes(layer)) for layer in range(tree.depth + 1)]


def random_present(network, drawn):
    """As many devices of each lowest server as take part."""
    tree, present = network.tree, np.zeros(network.tree.n_devices, dtype=bool)
    for server, count in enumerate(network.present):
        present[drawn.permutation(np.flatnonzero(tree.parents[-1] == server))[:count]] = True
    return present


def single_noises(network, deviations, present, top):
    """Each node's mean at layer `top` as a linear form over all noises there are."""
    tree = network.tree
    places = np.cumsum([0, *(len(of_layer) for of_layer in deviations)])
    forms = np.zeros((tree.n_devices, places[-1]))
    sends = present
    for layer in range(tree.depth, top, -1):
        above = np.zeros((tree.n_nodes(layer - 1), places[-1]))
        for node, parent in enumerate(tree.parents[layer - 1]):
            if sends[node]:
                forms[node, places[layer] + node] += deviations[layer][node]
                above[parent] += network.weights[layer - 1][node] * forms[node]
        forms, sends = above, np.ones(len(above), dtype=bool)
    return forms


@given(networks())
def test_variances_are_those_of_the_single_noises(system):
    network, drawn = system
    deviations, present = random_deviations(network, drawn), random_present(network, drawn)
    for top in range(network.tree.depth):
        found = mean_variances(network, deviations, present, top)
        assert len(found) == network.tree.depth - top
        forms = single_noises(network, deviations, present, top)
        np.testing.assert_allclose(found[0], (forms**2).sum(axis=1), rtol=1e-12)


@st.composite
def networks_of_sums(draw):
    """The same, or with readers of sums in which senders may be missing."""
    network, drawn = draw(networks())
    if draw(st.booleans()):
        return network, drawn
    depth = network.tree.depth
    if draw(st.booleans()):
        layers, decode = {draw(st.integers(1, depth))}, "cloud"
    else:
        layers, decode = draw(st.sets(st.integers(1, depth), min_size=1)), "parent"
    return replace(network, sums=SecureSums(frozenset(layers), decode, dropout=0.5)), drawn


@settings(max_examples=300)
@given(networks_of_sums())
def test_what_is_certain_inside_is_there_whoever_else_takes_part(system):
    """In every round in which a device's own message is in the sums, of whatever else is lost."""
    network, drawn = system
    tree = network.tree
    deviations = random_deviations(network, drawn)
    certain = [certain_inside(network, deviations, layer) for layer in range(tree.depth)]
    for chance in (0.1, 0.3, 0.6, 0.9):
        present = random_present(network, drawn)
        alive = alive_in_sums(network, present, drawn, chance)
        there = mean_variances(without(network, alive), deviations, present)
        for layer, least in enumerate(certain):
            read = present.copy()
            for at, members in alive.items():
                if at > layer:
                    read &= members[tree.ancestors[at]]
            variance = there[layer][tree.ancestors[layer]]
            assert (least <= variance * (1 + 1e-9))[read].all()
    if network.participants is None and not network.sums.layers:
        for layer, least in enumerate(certain):
            np.testing.assert_allclose(least, there[layer][tree.ancestors[layer]])


def without(network, alive):
    """The network in which messages of those who are not `alive` weigh nothing."""
    rho = list(network.weights)
    for layer, members in alive.items():
        rho[layer - 1] = rho[layer - 1] * members
    return replace(network, participants=None, participation=None, rho=tuple(rho))


def alive_in_sums(network, present, drawn, chance):
    """By layer of sums, whose messages are in them, when each falls silent with some chance."""
    result = {}
    for layer in network.sums.layers:
        members = (
            present if layer == network.tree.depth else np.ones(len(network.noise[layer]), bool)
        )
        of_node = readers(network.tree, network.sums, layer)
        sizes = np.bincount(of_node, weights=members).astype(int)
        silent = drawn.random(len(members)) < chance
        left = np.bincount(of_node, weights=members & ~silent)
        enough = left >= network.sums.least_members(sizes)
        result[layer] = members & ~silent & enough[of_node]
    return result


def test_noise_of_a_zone_whose_sum_is_lost_protects_nobody():
    """Four zones of six below a trusted cloud: of one's own five of six are left, at least."""
    tree = tree_from_fanouts([4, 6])
    sums = SecureSums(frozenset([2]), dropout=0.3)
    network = Network(tree, all_trusted(tree), noise_plan(tree, all_trusted(tree)), sums=sums)
    for_sure = replace(network, sums=replace(sums, dropout=0.0))
    three = replace(network, participants=4)  # of four three are left, each with weight 1/16
    deviations = [np.zeros(1), np.zeros(4), np.ones(24)]
    for its, expected in ((network, 5 / 24**2), (for_sure, 24 / 24**2), (three, 3 / 16**2)):
        np.testing.assert_allclose(certain_inside(its, deviations, 0), expected)


@given(networks())
def test_a_family_counts_on_what_is_there_whenever_a_member_is(system):
    network, drawn = system
    tree = network.tree
    deviations = random_deviations(network, drawn)
    for layer in range(1, tree.depth + 1):
        together, but_one = (
            family_variance(network, deviations[layer], layer, known) for known in (0, 1)
        )
        alone = [np.zeros(tree.n_nodes(at)) for at in range(tree.depth + 1)]
        alone[layer] = deviations[layer]
        present = random_present(network, drawn)
        mean = mean_variances(network, alone, present, layer - 1)[0]
        own = (network.weights[layer - 1] * deviations[layer]) ** 2
        for node, parent in enumerate(tree.parents[layer - 1]):
            if layer == tree.depth and not present[node]:
                continue
            assert together[node] <= mean[parent] * (1 + 1e-12)
            siblings = np.flatnonzero(tree.parents[layer - 1] == parent)
            others = [i for i in siblings if i != node and (layer < tree.depth or present[i])]
            for other in others:
                assert but_one[node] <= (mean[parent] - own[other]) * (1 + 1e-9) + 1e-15
