"""Trees from fan-outs and from edge lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.config import TopologyConfig
from m2fdp.errors import InputError
from m2fdp.topology.builders import build_tree, star, tree_from_edges, tree_from_fanouts


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
        ([("c", "a"), ("d", "b")], "one root"),
        ([("c", "a"), ("c", "b"), ("b", "d")], "all devices must be at one layer"),
        ([("c", "a"), ("x", "y"), ("y", "x")], "cycle"),
        ([("x", "y"), ("y", "x")], "one root"),
    ],
)
def test_edges_that_are_no_tree(edges, words):
    with pytest.raises(InputError, match=words):
        tree_from_edges(edges)


def test_edge_files(tmp_path):
    listed = tmp_path / "edges.csv"
    listed.write_text("parent,child\ncloud,A\nA,1\nA,2\n")
    assert build_tree(TopologyConfig(edges=str(listed))).names[2] == ("1", "2")
    nested = tmp_path / "edges.yml"
    nested.write_text("- [cloud, A]\n- [A, 1]\n- [A, 2]\n")
    assert build_tree(TopologyConfig(edges=str(nested))).names[2] == ("1", "2")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("missing.csv", None, "no such file"),
        ("a.csv", "from,to\na,b\n", "columns parent,child"),
        ("a.yml", "just text", "holds no edges"),
        ("a.yml", "- [a, b, c]", "no pair"),
        ("a.yml", "[a: {", "no YAML"),
        ("a.txt", "a b", "must end in"),
    ],
)
def test_bad_edge_files(tmp_path, name, text, words):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=words):
        build_tree(TopologyConfig(edges=str(path)))


def test_fanouts_must_match_the_edge_list(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("parent,child\ncloud,A\nA,1\nA,2\n")
    assert build_tree(TopologyConfig(edges=str(path), fanouts=[1, 2])).n_devices == 2
    with pytest.raises(InputError, match="topology.fanouts"):
        build_tree(TopologyConfig(edges=str(path), fanouts=[2, 1]))
