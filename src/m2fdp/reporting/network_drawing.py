"""The network as a layered tree: who is trusted, and whose messages carry fresh noise.

Every node is a mark, whatever the size of the network. Layers that are too wide for a mark and
an edge each are packed: the nodes of one kind below one parent become a block of small marks
with their number. All coordinates are inches, so nothing moves when the figure is saved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from m2fdp.core.formatting import counted
from m2fdp.reporting import style

DPI = 150
# Okabe-Ito colours: distinct to all kinds of colour vision, and by lightness when grey.
TRUSTED, UNTRUSTED, DEVICE, NOISE = "#0072B2", "#E69F00", "#444444", "#D55E00"
# The same with most of the ink taken out, for nodes that add no noise.
PALE = {TRUSTED: "#DCEBF5", UNTRUSTED: "#FDF0D2", DEVICE: "#FFFFFF"}
EDGE = "#B8B8B8"
TEXT = "#222222"

GUTTER = 1.75  # the layers' labels
MARGIN = 0.25
TREE_WIDTH = 10.0
WIDEST_PITCH = 1.1  # between siblings in a small tree
NARROWEST_PITCH = 0.068  # below it a layer is packed
FAMILY_GAP = 0.6  # between the children of two parents, in pitches
LAYER_GAP = 0.85  # from the lower end of a layer to the upper end of the next
NUMBER_HEIGHT = 0.18  # of the number below a block
LEGEND_ROW = 0.27
LEGEND_COLUMN = 2.4
PACKED_HEIGHT = {"server": 0.6, "device": 1.2}
PACKED_PITCH = 0.13
FONT = 8.0
SMALL_FONT = 6.5


class Shape(NamedTuple):
    """How nodes of a kind are drawn."""

    largest: float  # diameter
    share: float  # of the pitch
    in_legend: int  # points


SHAPES = {
    "cloud": Shape(0.4, 1.0, 11),
    "server": Shape(0.2, 0.64, 8),
    "device": Shape(0.14, 0.78, 8),
}
# Marker and outline by what a node is called.
MARKS = {
    "trusted cloud": ("h", TRUSTED),
    "untrusted cloud": ("h", UNTRUSTED),
    "trusted server": ("s", TRUSTED),
    "untrusted server": ("D", UNTRUSTED),
    "device": ("o", DEVICE),
}


class NodeMark(NamedTuple):
    """How a node is drawn, and what that says."""

    kind: str  # of `SHAPES`
    trusted: bool
    adds_noise: bool

    @property
    def marker(self) -> str:
        return MARKS[self.title][0]

    @property
    def colour(self) -> str:
        return MARKS[self.title][1]

    @property
    def fill(self) -> str:
        return NOISE if self.adds_noise else PALE[self.colour]

    @property
    def title(self) -> str:
        trust = "trusted" if self.trusted else "untrusted"
        return self.kind if self.kind == "device" else f"{trust} {self.kind}"


@dataclass(eq=False)
class _Layer:
    """The nodes of a layer in groups, one a node, or packed by parent and state; and where they
    are, once `_place` has said so."""

    names: Sequence[str]  # the nodes' names
    group: np.ndarray  # int64 (nodes,), the group of each node
    states: Sequence[NodeMark]  # the groups' states
    parents: np.ndarray  # int64 (groups,), the group above
    packed: bool  # whether groups hold several nodes
    centres: np.ndarray = field(init=False)  # (groups,)
    widths: np.ndarray = field(init=False)  # (groups,)
    level: float = field(init=False)  # the layer's middle

    def __post_init__(self) -> None:
        self.kind = self.states[0].kind
        self.sizes = np.bincount(self.group)
        self.height = PACKED_HEIGHT[self.kind] if self.packed else SHAPES[self.kind].largest

    @property
    def pitch(self) -> float:
        """The least distance between two groups."""
        return float(np.diff(self.centres).min()) if len(self.centres) > 1 else np.inf

    @property
    def shown_names(self) -> list[str]:
        """The nodes' names, shortened; none where there is no room."""
        if self.packed:
            return []
        names = list(map(style.shortened, self.names))
        turned = self.kind == "device"
        needed = 1.15 * SMALL_FONT / 72 if turned else 0.25 + max(map(_text_width, names))
        return names if self.pitch >= needed else []


def draw_network(table: pd.DataFrame) -> Figure:
    """The tree with the cloud at the top and the devices at the bottom.

    Shape and outline tell cloud, device, trusted and untrusted server; a solid mark with a
    heavy line up is a node whose message carries fresh noise.

    Args:
        table: rows of `m2fdp.pipelines.topology.network_table`.

    Returns:
        A figure whose scatter artists hold one mark a node; their `gid` is the node's state,
        such as "server trusted noise" or "device".
    """
    layers = _layers(table)
    _place(layers)
    lowest = layers[-1]
    below = max(map(_text_width, lowest.shown_names), default=NUMBER_HEIGHT * lowest.packed)
    ends = [layer.centres[-1] + _name_width(layer) for layer in layers]
    width = MARGIN + max(GUTTER + _tree_width(lowest), *ends)
    columns = max(1, int(width // LEGEND_COLUMN))
    entries = _legend_entries([state for layer in layers for state in layer.states])
    legend_height = -(-len(entries) // columns) * LEGEND_ROW + 0.1
    bottom = lowest.level - lowest.height / 2 - (MARGIN + below) - legend_height

    figure = Figure(figsize=(width, -bottom), dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(bottom, 0), frame_on=False)
    axes.xaxis.set_major_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())
    for upper, layer in pairwise(layers):
        _draw_edges(axes, upper, layer)
    for layer in layers:
        _draw_marks(axes, layer)
        if layer.packed:
            _draw_blocks(axes, layer)
        _draw_names(axes, layer)
    for depth, layer in enumerate(layers):
        label = _layer_label(depth, layer)
        style.write(axes, MARGIN / 2, layer.level, label, FONT, TEXT, ha="left")
    gaps = {"handletextpad": 0.5, "columnspacing": 1.5, "borderaxespad": 0.3}
    look = {"ncols": columns, "fontsize": FONT, "frameon": False} | gaps
    axes.legend(handles=entries, loc="lower center", **look)
    return figure


def _layers(table: pd.DataFrame) -> list[_Layer]:
    """The groups that are drawn, from the cloud down."""
    layers: list[_Layer] = []
    group_of: dict[str, int] = {}
    for depth, rows in table.groupby("layer"):
        names = rows["node"].tolist()
        parents = [0] if depth == 0 else [group_of[parent] for parent in rows["parent"]]
        columns = (rows[name].tolist() for name in ("kind", "trusted", "adds_noise"))
        states = list(map(NodeMark, *columns))
        gaps = FAMILY_GAP * (len(set(parents)) - 1)
        packed = (len(names) + gaps) * NARROWEST_PITCH > TREE_WIDTH
        keys = list(zip(parents, states, strict=True)) if packed else list(enumerate(states))
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        group = np.array([numbers[key] for key in keys])
        first = np.unique(group, return_index=True)[1]
        marks = [states[i] for i in first]
        layers.append(_Layer(names, group, marks, np.array(parents)[first], packed))
        group_of = dict(zip(names, group.tolist(), strict=True))
    return layers


def _tree_width(leaves: _Layer) -> float:
    """Inches that the lowest layer takes; a small tree is narrower."""
    if leaves.packed:
        return TREE_WIDTH
    return float(np.clip(WIDEST_PITCH * len(leaves.names), 5.0, TREE_WIDTH))


def _place(layers: Sequence[_Layer]) -> None:
    """Say where all groups are: the lowest share the width, and parents span their own."""
    leaves = layers[-1]
    share = 1 / len(leaves.states) + leaves.sizes / len(leaves.names)
    first = np.diff(leaves.parents, prepend=leaves.parents[0]) != 0
    gaps = np.cumsum(first) * FAMILY_GAP * share.mean() * (not leaves.packed)
    right = np.cumsum(share) + gaps
    scale = _tree_width(leaves) / right[-1]
    low, high = scale * (right - share), scale * right
    for layer in reversed(layers):
        layer.centres, layer.widths = GUTTER + (low + high) / 2, high - low
        starts = np.unique(layer.parents, return_index=True)[1]
        low, high = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    top = -MARGIN
    for layer in layers:
        layer.level = top - layer.height / 2
        top -= layer.height + LAYER_GAP


def _marks(layer: _Layer) -> tuple[np.ndarray, np.ndarray, float]:
    """Where each node's mark is, and the marks' diameter in inches."""
    if not layer.packed:
        shape = SHAPES[layer.kind]
        diameter = min(shape.largest, shape.share * layer.pitch)
        return layer.centres, np.full(len(layer.centres), layer.level), diameter
    # How many marks fit side by side into each block.
    inner, pitch = np.maximum(0.86 * layer.widths, 0.94 * layer.widths - 0.1), PACKED_PITCH
    columns = np.floor(inner / pitch).astype(np.int64)
    while (columns < 1).any() or (-(-layer.sizes // columns) * pitch > layer.height).any():
        pitch *= 0.97
        columns = np.floor(inner / pitch).astype(np.int64)
    columns = np.minimum(columns, layer.sizes)
    order = np.argsort(layer.group, kind="stable")
    starts = np.cumsum(layer.sizes) - layer.sizes
    place = np.empty(len(layer.group), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(starts, layer.sizes)
    row, column = np.divmod(place, columns[layer.group])
    x = layer.centres[layer.group] + (column - (columns[layer.group] - 1) / 2) * pitch
    return x, layer.level + layer.height / 2 - (row + 0.5) * pitch, 0.7 * pitch


def _draw_marks(axes: Axes, layer: _Layer) -> None:
    x, y, diameter = _marks(layer)
    points = 72 * diameter
    for state in dict.fromkeys(layer.states):
        members = np.array([other == state for other in layer.states])[layer.group]
        axes.scatter(
            x[members],
            y[members],
            s=(points * (0.85 if state.marker == "D" else 1.0)) ** 2,
            marker=state.marker,
            facecolor=state.fill,
            edgecolor=state.colour,
            linewidth=min(1.4, 0.14 * points),
            zorder=3,
            gid=" ".join([*reversed(state.title.split()), *["noise"] * state.adds_noise]),
        )


def _draw_edges(axes: Axes, upper: _Layer, layer: _Layer) -> None:
    """Lines up from the groups of a layer; heavy where the message carries fresh noise."""
    start = upper.level - upper.packed * (upper.height / 2 + NUMBER_HEIGHT)
    end = layer.level + layer.packed * layer.height / 2
    # Upright at both ends, so that no line runs through the names beside the marks.
    progress = np.linspace(0, 1, 33)
    across = progress**2 * (3 - 2 * progress)
    x_start, x_end = upper.centres[layer.parents, None], layer.centres[:, None]
    x = x_start + (x_end - x_start) * across
    segments = np.stack([x, np.broadcast_to(start + (end - start) * progress, x.shape)], axis=2)
    noised = np.array([state.adds_noise for state in layer.states])
    for chosen, colour, width in ((~noised, EDGE, 0.8), (noised, NOISE, 1.3)):
        lines = LineCollection(segments[chosen], colors=colour, linewidths=width, zorder=1)
        axes.add_collection(lines, autolim=False)


def _draw_blocks(axes: Axes, layer: _Layer) -> None:
    """A pale ground below each block of marks, and the number of them."""
    foot = layer.level - layer.height / 2
    look: dict[str, Any] = {"facecolor": "#F4F4F4", "edgecolor": "none", "zorder": 2}
    for x, width, size in zip(layer.centres, layer.widths, layer.sizes, strict=True):
        size_of_block = (0.94 * width, layer.height + 0.04)
        axes.add_patch(Rectangle((x - 0.47 * width, foot - 0.02), *size_of_block, **look))
        number = f"×{size:,}"
        if _text_width(number) < width:
            _write_small(axes, x, foot - 0.06, number, ha="center", va="top")


def _write_small(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    axes.text(x, y, text, fontsize=SMALL_FONT, color=TEXT, zorder=4, **options)


def _name_width(layer: _Layer) -> float:
    """Inches that the last name of a layer takes to the right of its mark's middle."""
    names = layer.shown_names
    if layer.kind == "device" or not names:
        return 0.0
    return _name_offset(layer) + _text_width(names[-1])


def _name_offset(layer: _Layer) -> float:
    return layer.height / 2 + 0.03


def _draw_names(axes: Axes, layer: _Layer) -> None:
    """Names beside cloud and servers, and turned below devices."""
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
    look: dict[str, Any] = {"ha": "left", "va": "center", "bbox": ground}
    right, up = _name_offset(layer), 0.0
    if layer.kind == "device":
        right, up, look = 0.0, -0.12, {"rotation": 90, "ha": "center", "va": "top"}
    for name, x in zip(layer.shown_names, layer.centres, strict=False):
        _write_small(axes, x + right, layer.level + up, name, parse_math=False, **look)


def _text_width(text: str) -> float:
    """Inches in the small font, on the safe side."""
    return 0.62 * SMALL_FONT / 72 * len(text)


def _layer_label(depth: int, layer: _Layer) -> str:
    if depth == 0:
        return f"layer {depth}: the {layer.kind}"
    count = len(layer.names)
    trusted, noised = (
        sum(int(n) for n, s in zip(layer.sizes, layer.states, strict=True) if getattr(s, name))
        for name in ("trusted", "adds_noise")
    )
    lines = [f"layer {depth}: {counted(count, layer.kind)}"]
    if layer.kind == "server":
        parts = {"trusted": trusted, "untrusted": count - trusted}
        lines.append(", ".join(f"{n:,} {name}" for name, n in parts.items() if n))
    lines.append(f"{noised:,} add{'s' * (noised == 1)} noise" if noised else "none add noise")
    return "\n".join(lines)


def _legend_entries(states: Sequence[NodeMark]) -> list[Line2D]:
    """One entry a shape that occurs, and one for noise if anybody adds it."""

    def rank(state: NodeMark) -> tuple[int, bool]:
        return list(SHAPES).index(state.kind), state.trusted

    entries = []
    for title, state in {state.title: state for state in sorted(states, key=rank)}.items():
        look: dict[str, Any] = {"marker": state.marker, "linestyle": "none", "markeredgewidth": 1.2}
        look |= {"markersize": SHAPES[state.kind].in_legend, "markeredgecolor": state.colour}
        entries.append(Line2D([], [], label=title, markerfacecolor=PALE[state.colour], **look))
    if any(state.adds_noise for state in states):
        look = {"color": NOISE, "linewidth": 1.3, "marker": "o", "markersize": 8}
        label = "solid: its message carries fresh noise"
        entries.append(Line2D([], [], label=label, markeredgecolor=NOISE, **look))
    return entries
