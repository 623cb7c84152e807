"""Who is trusted, and where noise is added: against brute force on small trees, and as properties
on any tree."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.core.config import TopologyConfig, TrustConfig
from m2fdp.core.errors import InputError
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import (
    Network,
    check_network,
    exposed_devices,
    heads_of,
    noise_plan,
)
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import all_untrusted, build_trust, draw_trust, explicit_trust
from m2fdp.pipelines.topology import network_table


def ragged(children_by_layer):
    """A tree from the numbers of children of the nodes of layers 0…L-1."""
    parents = tuple(np.repeat(np.arange(len(row)), row) for row in children_by_layer)
    names = tuple(
        tuple(f"{layer}.{i}" for i in range(size))
        for layer, size in enumerate([1, *(sum(row) for row in children_by_layer)])
    )
    return Tree(parents, names)


def compositions(total, parts):
    """All ways to write `total` as `parts` ordered positive numbers."""
    if parts == 1:
        return [(total,)]
    return [
        (first, *rest)
        for first in range(1, total - parts + 2)
        for rest in compositions(total - first, parts - 1)
    ]


def small_trees(nodes_left, depth, width=1):
    """All layer-by-layer child counts with at most `nodes_left` more nodes."""
    if depth == 0:
        yield ()
        return
    for below in range(width, nodes_left + 1):
        for row in compositions(below, width):
            for rest in small_trees(nodes_left - below, depth - 1, below):
                yield (row, *rest)


def closed_trusts(tree):
    """All trusts with an untrusted cloud in which children of trusted servers are trusted."""
    servers = [(layer, i) for layer in range(1, tree.depth) for i in range(tree.n_nodes(layer))]
    for bits in product([False, True], repeat=len(servers)):
        trusted = dict(zip(servers, bits, strict=True)) | {(0, 0): False}
        if all(
            trusted[layer, i] or not trusted[layer - 1, int(tree.parents[layer - 1][i])]
            for layer, i in servers
        ):
            yield tuple(
                np.array([trusted[layer, i] for i in range(tree.n_nodes(layer))])
                for layer in range(tree.depth)
            )


def first_crossings(tree, trust):
    """By walking every path: the child ends of the first edges into untrusted nodes."""
    found = set()
    for device in range(tree.n_devices):
        layer, node = tree.depth, device
        while True:
            parent = int(tree.parents[layer - 1][node])
            if not trust[layer - 1][parent]:
                found.add((layer, node))
                break
            layer, node = layer - 1, parent
    return found


def test_every_small_tree_against_brute_force():
    cases = 0
    for depth in (1, 2, 3):
        for rows in small_trees(7, depth):
            tree = ragged(rows)
            for trust in closed_trusts(tree):
                plan = noise_plan(tree, trust)
                planned = {
                    (layer, int(i))
                    for layer, noise in enumerate(plan)
                    for i in np.flatnonzero(noise)
                }
                assert planned == first_crossings(tree, trust)
                adders = heads_of(Network(tree, trust, plan))
                assert {tuple(adder) for adder in adders.tolist()} == planned
                cases += 1
    assert cases == 172


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data(), st.integers(0, 99))
def test_no_raw_message_reaches_untrusted_ground(fanouts, data, seed):
    tree = tree_from_fanouts(fanouts)
    size = tree.depth - 1
    ratios = data.draw(st.lists(st.floats(0, 1), min_size=size, max_size=size))
    trust = draw_trust(tree, ratios, seed)
    noise = noise_plan(tree, trust)
    assert not noise[0].any()
    raw = np.ones(tree.n_devices, dtype=bool)
    times = np.zeros(tree.n_devices, dtype=int)
    for layer in range(tree.depth, 0, -1):
        parents = tree.parents[layer - 1]
        sent_raw = raw & (noise[layer] == 0)
        assert not (sent_raw & ~trust[layer - 1][parents]).any()
        raw = np.zeros(tree.n_nodes(layer - 1), dtype=bool)
        raw[parents[sent_raw]] = True
        times += noise[layer][tree.ancestors[layer]] == 1
    assert (times == 1).all()
    assert not exposed_devices(Network(tree, trust, noise)).any()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data(), st.integers(0, 99))
def test_a_head_is_the_last_to_add_noise_before_untrusted_ground(fanouts, data, seed):
    """Wherever noise is placed, and whoever is trusted: by walking up from every device."""
    tree = tree_from_fanouts(fanouts)
    drawn = np.random.default_rng(seed)
    servers = (drawn.random(tree.n_nodes(layer)) < 0.6 for layer in range(1, tree.depth))
    trust = (np.array([data.draw(st.booleans())]), *servers)
    chance = data.draw(st.sampled_from([0.2, 0.5, 0.9]))
    noise = tuple(
        np.where(drawn.random(tree.n_nodes(layer)) < chance, drawn.random(), 0.0)
        for layer in range(tree.depth + 1)
    )
    network = Network(tree, trust, noise)
    heads, exposed = heads_of(network), exposed_devices(network)
    for device in range(tree.n_devices):
        layer, node, last = tree.depth, device, None
        while True:
            if noise[layer][node]:
                last = (layer, node)
            if layer == 0:
                break
            layer, node = layer - 1, int(tree.parents[layer - 1][node])
            if not trust[layer][node]:
                break
        assert exposed[device] == (last is None)
        assert tuple(heads[device]) == (last or (tree.depth, device))


def test_a_trusted_cloud_noises_what_it_broadcasts():
    tree = tree_from_fanouts([2, 2])
    everybody = (np.array([True]), np.array([True, True]))
    plan = noise_plan(tree, everybody)
    assert [part.tolist() for part in plan] == [[1], [0, 0], [0, 0, 0, 0]]
    assert heads_of(Network(tree, everybody, plan)).tolist() == [[0, 0]] * 4
    # An untrusted server's devices are behind noise of their own.
    one = (np.array([True]), np.array([True, False]))
    plan = noise_plan(tree, one)
    assert [part.tolist() for part in plan] == [[1], [0, 0], [0, 0, 1, 1]]
    assert heads_of(Network(tree, one, plan)).tolist() == [[0, 0], [0, 0], [2, 2], [2, 3]]
    assert network_table(Network(tree, one, plan)).loc[0, ["trusted", "adds_noise"]].all()


def test_only_the_cloud_may_be_trusted_above_untrusted_servers():
    tree = tree_from_fanouts([1, 2, 1])
    trust = (np.array([True]), np.array([True]), np.array([True, False]))
    with pytest.raises(InputError, match="'own': trusts a server of layer 1 .*J eq. 4"):
        check_network("own", Network(tree, trust, noise_plan(tree, trust)))
    trust = (np.array([True]), np.array([False]), np.array([True, False]))
    check_network("own", Network(tree, trust, noise_plan(tree, trust)))


def test_table_says_who_is_who():
    tree = tree_from_fanouts([2, 1])
    trust = (np.array([False]), np.array([True, False]))
    table = network_table(Network(tree, trust, noise_plan(tree, trust))).set_index("node")
    assert table.loc["cloud", "parent"] == ""
    assert table.loc["server-1-0", ["trusted", "adds_noise"]].tolist() == [True, True]
    assert table.loc["server-1-1", ["trusted", "adds_noise"]].tolist() == [False, False]
    assert table["adds_noise"].to_dict()["device-0"] is False
    assert table["adds_noise"].to_dict()["device-1"] is True
    assert table["kind"].tolist() == ["cloud", "server", "server", "device", "device"]


def test_numbers_of_participants_by_server():
    """Servers of 3, 1 and 4 devices; at most so many of each take part."""
    tree = ragged([(3,), (3, 1, 4)])
    trust = explicit_trust(tree, [f"1.{i}" for i in range(3)])
    network = Network(tree, trust, noise_plan(tree, trust), np.array([2, 2, 5]))
    assert network.present.tolist() == [2, 1, 4]
    assert network.weights[-1].tolist() == [1 / 2] * 3 + [1.0] + [1 / 4] * 4
    assert network.smallest_fanout(1) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise": (np.ones(2), np.ones(2))}, r"each of the 1 \+ 2 \+ 2 nodes of layers 0 to 2"),
        ({"noise": (np.zeros(1), np.zeros(2), np.array([1.0, -1.0]))}, "not 0 or more"),
        ({"rho": (np.full(2, 0.5), np.array([1.0, 0.5]))}, "do not sum to one"),
    ],
)
def test_what_no_network_may_be_is_told_in_one_line(changes, words):
    tree = tree_from_fanouts([2, 1])
    network = Network(tree, all_untrusted(tree), noise_plan(tree, all_untrusted(tree)))
    check_network("own", network)
    with pytest.raises(InputError, match=f"^algorithm = 'own': .*{words}"):
        check_network("own", replace(network, **changes))


FANOUTS = st.lists(st.integers(1, 4), min_size=2, max_size=4)


@given(FANOUTS, st.data(), st.integers(0, 99))
def test_ratios_give_closed_trust_with_the_asked_shares(fanouts, data, seed):
    tree = tree_from_fanouts(fanouts)
    share = st.floats(0, 1)
    ratios = data.draw(st.lists(share, min_size=tree.depth - 1, max_size=tree.depth - 1))
    trust = draw_trust(tree, ratios, seed)
    assert not trust[0][0]
    for layer, ratio in enumerate(ratios, start=1):
        for parent, parent_trusted in enumerate(trust[layer - 1]):
            children = trust[layer][tree.parents[layer - 1] == parent]
            if parent_trusted:
                assert children.all()
            else:
                assert children.sum() == int(ratio * len(children) + 0.5)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 99))
def test_trusted_sets_are_nested_in_p(p, other, seed):
    tree = tree_from_fanouts([7, 2])
    low, high = (draw_trust(tree, [ratio], seed)[1] for ratio in sorted((p, other)))
    assert not (low & ~high).any()


def test_names():
    tree = tree_from_fanouts([2, 2, 1])
    trust = explicit_trust(tree, ["server-1-0", "server-2-1"])
    assert trust[1].tolist() == [False, True]
    assert trust[2].tolist() == [True, False, True, True]
    for name, words in (
        ("server-2-3", "server-2-3.*server-1-1"),  # below a trusted server
        ("device-0", "no server of this tree"),
    ):
        with pytest.raises(InputError, match=words):
            explicit_trust(tree, [name])


def test_wrong_lengths():
    with pytest.raises(InputError, match="needs 1 number"):
        draw_trust(tree_from_fanouts([2, 2]), [0.5, 0.5], seed=0)
    with pytest.raises(InputError, match=r"needs 0 numbers, .*; write none as \[\]$"):
        draw_trust(tree_from_fanouts([4]), [0.5], seed=0)


def test_no_trust_configured_means_nobody_is_trusted():
    trust = build_trust(
        tree_from_fanouts([2, 2]), TopologyConfig(trust=TrustConfig(ratios=None)), 0
    )
    assert not any(of_layer.any() for of_layer in trust)
