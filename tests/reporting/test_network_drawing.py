"""The network drawing: every node is a mark of its own kind, inside the figure."""

import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, no_noise, noise_plan
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import draw_trust
from m2fdp.given.edges import tree_from_edges
from m2fdp.pipelines.topology import network_table
from m2fdp.reporting.network_drawing import NOISE, draw_network


def table_of(tree: Tree, *ratios: float, noise: bool = True) -> pd.DataFrame:
    trust = draw_trust(tree, ratios, seed=0)
    plan = noise_plan(tree, trust) if noise else no_noise(tree)
    return network_table(Network(tree, trust, plan))


def ragged(sizes: list[int]) -> Tree:
    edges = [("hub", f"site-{i}") for i in range(len(sizes))]
    edges += [(f"site-{i}", f"phone-{i}-{j}") for i, n in enumerate(sizes) for j in range(n)]
    return tree_from_edges(edges)


def marks(figure: Figure) -> dict[str, int]:
    counts: dict[str, int] = {}
    for artist in figure.axes[0].collections:
        if isinstance(artist, PathCollection):
            counts[artist.get_gid()] = counts.get(artist.get_gid(), 0) + len(artist.get_offsets())
    return counts


def kinds(table: pd.DataFrame) -> dict[str, int]:
    """What `marks` must count, straight from the table."""
    trust = table["trusted"].map({True: " trusted", False: " untrusted"})
    trust = trust.where(table["kind"] != "device", "")
    noise = table["adds_noise"].map({True: " noise", False: ""})
    return (table["kind"] + trust + noise).value_counts().to_dict()


def lines(figure: Figure) -> list[np.ndarray]:
    collections = [a for a in figure.axes[0].collections if isinstance(a, LineCollection)]
    return [segment for artist in collections for segment in artist.get_segments()]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


CASES = {
    "fifty": table_of(tree_from_fanouts([10, 5]), 0.5),
    "thousand": table_of(tree_from_fanouts([40, 25]), 0.5),
    "star": table_of(tree_from_fanouts([50])),
    "thousand in a star": table_of(tree_from_fanouts([1000])),
    "depth 4": table_of(tree_from_fanouts([2, 4, 4, 4]), 0.0, 0.5, 0.5),
    "packed servers": table_of(tree_from_fanouts([2, 300, 4]), 0.5, 0.5),
    "ragged": table_of(ragged([2, 7, 1, 12]), 0.5),
    "ragged and packed": table_of(ragged([2, 7, 1, 12, 300, 80]), 0.5),
    "one device": table_of(tree_from_fanouts([1])),
}


@pytest.mark.parametrize("table", CASES.values(), ids=CASES.keys())
def test_every_node_is_one_mark_of_its_kind_and_all_texts_are_inside_and_apart(table):
    figure = draw_network(table)
    assert marks(figure) == kinds(table)
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    axes = figure.axes[0]
    boxes = [artist.get_window_extent() for artist in [*axes.texts, axes.get_legend()]]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    x, y = np.concatenate(
        [a.get_offsets() for a in axes.collections if isinstance(a, PathCollection)]
    ).T
    assert (axes.get_xlim()[0] < x).all() and (x < axes.get_xlim()[1]).all()
    assert (axes.get_ylim()[0] < y).all() and (y < axes.get_ylim()[1]).all()


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_marks_of_a_ragged_tree_never_coincide(sizes, ratio):
    table = table_of(ragged(sizes), ratio)
    figure = draw_network(table)
    assert marks(figure) == kinds(table)
    offsets = np.concatenate(
        [a.get_offsets() for a in figure.axes[0].collections if isinstance(a, PathCollection)]
    )
    assert len(np.unique(offsets.round(4), axis=0)) == len(table)


def test_fifty_devices_have_their_names_and_a_line_each():
    figure = draw_network(CASES["fifty"])
    assert set(CASES["fifty"]["node"]) <= set(texts(figure))
    assert len(lines(figure)) == 60
    assert "layer 1: 10 servers\n5 trusted, 5 untrusted\n5 add noise" in texts(figure)
    assert "layer 2: 50 devices\n25 add noise" in texts(figure)


def test_noised_messages_are_the_heavy_lines():
    figure = draw_network(CASES["ragged"])
    plain, noised = [], []  # the width of each line
    for artist in figure.axes[0].collections:
        if isinstance(artist, LineCollection):
            kind = noised if same_color(artist.get_colors(), NOISE) else plain
            (width,) = artist.get_linewidths()
            kind += [width] * len(artist.get_segments())
    assert len(noised) == CASES["ragged"]["adds_noise"].sum()
    assert len(plain) == 26 - CASES["ragged"]["adds_noise"].sum()
    assert min(noised) > max(plain)


def test_a_thousand_devices_are_blocks_with_their_numbers():
    figure = draw_network(CASES["thousand"])
    blocks = [p for p in figure.axes[0].patches if isinstance(p, Rectangle)]
    assert len(blocks) == 40
    assert texts(figure).count("×25") == 40
    assert len(lines(figure)) == 80  # one to each server and one to each block
    assert not any(text.startswith("device-") for text in texts(figure))


def test_packed_devices_lie_below_their_own_server():
    sizes = [2, 7, 1, 12, 300, 80]
    figure = draw_network(table_of(ragged(sizes), 0.0))
    blocks = sorted(p.get_x() for p in figure.axes[0].patches if isinstance(p, Rectangle))
    (devices,) = (a for a in figure.axes[0].collections if a.get_gid() == "device noise")
    block_of = np.searchsorted(blocks, devices.get_offsets()[:, 0]) - 1
    assert np.bincount(block_of).tolist() == sizes


def test_the_legend_names_what_occurs_and_nothing_else():
    def legend(table: pd.DataFrame) -> list[str]:
        return [text.get_text() for text in draw_network(table).axes[0].get_legend().texts]

    noise = "solid: its message carries fresh noise"
    both = ["untrusted cloud", "untrusted server", "trusted server", "device"]
    tree = tree_from_fanouts([10, 5])
    assert legend(table_of(tree, 0.5)) == [*both, noise]
    assert legend(table_of(tree, 0.5, noise=False)) == both
    assert legend(CASES["star"]) == ["untrusted cloud", "device", noise]


def test_kinds_differ_in_shape_and_noise_in_fill():
    table = table_of(tree_from_fanouts([2, 4, 4, 4]), 0.0, 0.5, 0.5)
    drawn = {
        artist.get_gid(): (
            artist.get_paths()[0].vertices.round(6).tobytes(),
            artist.get_facecolor().tobytes(),
        )
        for artist in draw_network(table).axes[0].collections
        if isinstance(artist, PathCollection)
    }
    shapes = {re.sub(" noise$", "", gid): shape for gid, (shape, _) in drawn.items()}
    assert len(set(shapes.values())) == len(shapes) == 4
    for kind in ("server trusted", "device"):
        assert drawn[kind][1] != drawn[f"{kind} noise"][1]


def test_long_names_are_shortened():
    tree = tree_from_edges([("c", "a-device-with-a-very-long-name"), ("c", "b"), ("c", r"$\x$")])
    figure = draw_network(table_of(tree))
    assert {"a-device-with…", r"$\x$"} <= set(texts(figure))
    figure.savefig(io.BytesIO())  # where a formula would be read


def test_bytes_are_reproducible():
    files = io.BytesIO(), io.BytesIO()
    for file in files:
        draw_network(CASES["ragged"]).savefig(file)
    assert files[0].getvalue() == files[1].getvalue()
