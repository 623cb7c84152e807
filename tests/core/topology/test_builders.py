"""Trees from fan-outs and from edge lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.core.config import TopologyConfig
from m2fdp.core.errors import InputError
from m2fdp.core.topology.builders import build_tree, star, tree_from_fanouts
from m2fdp.given.edges import read_edges, tree_from_edges


def test_balanced_tree_by_hand():
    tree = tree_from_fanouts([2, 3])
    assert tree.depth == 2
    assert tree.parents[0].tolist() == [0, 0]
    assert tree.parents[1].tolist() == [0, 0, 0, 1, 1, 1]
    assert tree.names[1] == ("server-1-0", "server-1-1")
    assert tree.ancestors[1].tolist() == [0, 0, 0, 1, 1, 1]
    assert [tree.smallest_fanout(layer) for layer in (0, 1)] == [2, 3]


def test_ragged_edges_by_hand():
    edges = [("cloud", "A"), ("cloud", "B"), ("B", "b"), ("A", "x"), ("A", "y")]
    tree = tree_from_edges(edges)
    assert tree.names == (("cloud",), ("A", "B"), ("x", "y", "b"))
    assert tree.parents[1].tolist() == [0, 0, 1]
    assert tree.n_children(1).tolist() == [2, 1]
    assert tree.smallest_fanout(1) == 1
    assert tree.uniform_weights[1].tolist() == [0.5, 0.5, 1.0]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_edge_list_of_a_balanced_tree_is_that_tree(fanouts):
    tree = tree_from_fanouts(fanouts)
    edges = [
        (tree.names[layer][parent], tree.names[layer + 1][child])
        for layer, parents in enumerate(tree.parents)
        for child, parent in enumerate(parents)
    ]
    again = tree_from_edges(edges)
    assert again.names == tree.names
    for one, other in zip(again.parents, tree.parents, strict=True):
        np.testing.assert_array_equal(one, other)


def test_star_keeps_the_devices():
    tree = tree_from_fanouts([3, 2, 2])
    flat = star(tree)
    assert flat.depth == 1
    assert flat.names[1] == tree.names[3]


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([("c", "a"), ("c", "b"), ("b", "a")], "two edges from above"),
        ([("c", "a"), ("c", "b"), ("c", "a")], "'c,a': is listed twice"),
        ([("c", "a"), ("d", "b")], "one root"),
        ([("c", "a"), ("c", "b"), ("b", "d")], "all devices must be at one layer"),
        ([("c", "a"), ("x", "y"), ("y", "x")], "cycle"),
        ([("x", "y"), ("y", "x")], "= 'x': is on a cycle; .* one root"),
        ([("y", "a"), ("y", "x"), ("x", "y")], "= '[xy]': is on a cycle"),
        ([("c", "A"), ("A", "-1")], "= '-1': stands for the cloud"),
    ],
)
def test_edges_that_are_no_tree(edges, words):
    with pytest.raises(InputError, match=words):
        tree_from_edges(edges)


CSV = "parent,child\ncloud,A\nA,1\nA,2\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("edges.csv", CSV.encode()),
        ("EDGES.CSV", CSV.encode()),
        ("edges.yml", b"- [cloud, A]\n- [A, 1]\n- [A, 2]\n"),
        # As spreadsheets write them: a byte-order mark, spaces about the comma, blank lines.
        ("edges.csv", b"\xef\xbb\xbf" + CSV.encode()),
        ("edges.csv", CSV.replace(",", " , ").encode()),
        ("edges.csv", b"\n  \n" + CSV.encode()),
    ],
)
def test_edge_files(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    assert read_edges(path) == [("cloud", "A"), ("A", "1"), ("A", "2")]
    assert build_tree(TopologyConfig(edges=str(path))).names[2] == ("1", "2")


def test_siblings_are_in_the_order_of_their_names_whatever_that_of_the_rows():
    names = ["2", "10", "a", "a2", "a10", "a10b", "b1"]
    for rows in (names, names[::-1], sorted(names)):
        assert tree_from_edges([("c", name) for name in rows]).names[1] == tuple(names)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.csv", None, "no such file"),
        ("a.csv", b"from,to\na,b\n", "columns parent,child"),
        ("a.yml", b"just text", "holds no edges"),
        ("a.yml", b"- [a, b, c]", "no pair"),
        ("a.yml", b"[a: {", "no YAML"),
        ("a.txt", b"a b", "must end in"),
        ("a.csv", CSV.replace("A", "Ä").encode("latin-1"), "byte 19 is not UTF-8"),
        ("a.yml", "- [cloud, Ä]".encode("latin-1"), "not UTF-8"),
        ("a.csv", CSV.encode() + b"A,\0\n", "no pair"),
        ("a.csv", CSV.encode() + b"A\n", "no pair"),
        ("a.csv", CSV.encode() + b'A,"3\n', "no CSV"),
        ("a.yml", b"- [cloud, {a: 1}]", "no pair"),
        ("a.yml", b"- [cloud, !x a]", "a tag"),
    ],
)
def test_edge_files_that_hold_something_else(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        build_tree(TopologyConfig(edges=str(path)))
    assert "\n" not in str(caught.value)


AS_WRITTEN = ["007", "008", "010", "1_0", "1:30", "1.50", "yes", "null", "0x1F", "2020-01-01"]


@pytest.mark.parametrize("suffix", ["csv", "yml"])
def test_names_of_nodes_stay_as_they_are_written(tmp_path, suffix):
    path = tmp_path / f"edges.{suffix}"
    rows = [f"- [cloud, {name}]" for name in AS_WRITTEN]
    if suffix == "csv":
        rows = ["parent,child", *(f"cloud,{name}" for name in AS_WRITTEN)]
    path.write_text("\n".join(rows))
    assert read_edges(path) == [("cloud", name) for name in AS_WRITTEN]


def test_more_nodes_than_fit_in_memory_are_refused_before_any_is_made():
    with pytest.raises(InputError, match="make 10,000,000,100,000,000 nodes; at most 1,000,000"):
        tree_from_fanouts([100_000_000, 100_000_000])


def test_fanouts_must_match_the_edge_list(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text(CSV)
    assert build_tree(TopologyConfig(edges=str(path), fanouts=[1, 2])).n_devices == 2
    with pytest.raises(InputError, match="topology.fanouts"):
        build_tree(TopologyConfig(edges=str(path), fanouts=[2, 1]))
