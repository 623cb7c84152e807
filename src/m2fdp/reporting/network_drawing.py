"""The network as a layered tree: who is trusted, and whose messages carry fresh noise.

Every node is a mark, whatever the size of the network. Layers that are too wide for a mark and
an edge each are packed: the nodes of one kind below one parent become a block of small marks
with their number. All coordinates are inches, so nothing moves when the figure is saved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class _Layer:
    """The nodes of a layer in groups: one a node, or packed by parent and state."""

    names: Sequence[str]  # the nodes' names
    group: np.ndarray  # int64 (nodes,), the group of each node
    states: Sequence[NodeMark]  # the groups' states
    parents: np.ndarray  # int64 (groups,), the group above
    packed: bool  # whether groups hold several nodes

    @property
    def kind(self) -> str:
        return self.states[0].kind

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.group)

    @property
    def height(self) -> float:
        return PACKED_HEIGHT[self.kind] if self.packed else SHAPES[self.kind].largest


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
    centres, widths = _columns(layers)
    y = _rows(layers)
    names = _shown_names(layers[-1], centres[-1])
    number = NUMBER_HEIGHT * layers[-1].packed
    depth_below = MARGIN + max(map(_text_width, names), default=number)
    states = list(dict.fromkeys(state for layer in layers for state in layer.states))
    width = MARGIN + max(
        GUTTER + _tree_width(layers[-1]),
        *(x[-1] + _name_width(layer, x) for layer, x in zip(layers, centres, strict=True)),
    )
    columns = max(1, int(width // LEGEND_COLUMN))
    entries = _legend_entries(states)
    legend_height = -(-len(entries) // columns) * LEGEND_ROW + 0.1
    bottom = y[-1] - layers[-1].height / 2 - depth_below - legend_height

    figure = Figure(figsize=(width, -bottom), dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(bottom, 0), frame_on=False)
    axes.xaxis.set_major_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())
    for depth in range(1, len(layers)):
        _draw_edges(axes, layers, centres, y, depth)
    for layer, x, w, level in zip(layers, centres, widths, y, strict=True):
        _draw_marks(axes, layer, *_marks(layer, x, w, level))
        if layer.packed:
            _draw_blocks(axes, layer, x, w, level)
        _draw_names(axes, layer, x, level)
    for depth, (layer, level) in enumerate(zip(layers, y, strict=True)):
        style.write(axes, MARGIN / 2, level, _layer_label(depth, layer), FONT, TEXT, ha="left")
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


def _columns(layers: Sequence[_Layer]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Centre and width of every group: the lowest share the width, parents span their own."""
    leaves = layers[-1]
    share = 1 / len(leaves.states) + leaves.sizes / len(leaves.names)
    first = np.diff(leaves.parents, prepend=leaves.parents[0]) != 0
    gaps = np.cumsum(first) * FAMILY_GAP * share.mean() * (not leaves.packed)
    right = np.cumsum(share) + gaps
    scale = _tree_width(leaves) / right[-1]
    spans = [(scale * (right - share), scale * right)]
    for layer in reversed(layers[1:]):
        starts = np.unique(layer.parents, return_index=True)[1]
        low, high = spans[-1]
        spans.append((np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)))
    spans.reverse()
    centres = [GUTTER + (low + high) / 2 for low, high in spans]
    return centres, [high - low for low, high in spans]


def _rows(layers: Sequence[_Layer]) -> list[float]:
    """The middle of every layer, from the upper edge down."""
    middles, top = [], -MARGIN
    for layer in layers:
        middles.append(top - layer.height / 2)
        top -= layer.height + LAYER_GAP
    return middles


def _marks(
    layer: _Layer, centres: np.ndarray, widths: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Where each node's mark is, and the marks' diameter in inches."""
    if not layer.packed:
        pitch = np.diff(centres).min() if len(centres) > 1 else np.inf
        shape = SHAPES[layer.kind]
        diameter = min(shape.largest, shape.share * pitch)
        return centres, np.full(len(centres), level), diameter
    pitch = PACKED_PITCH
    while (_n_columns(widths, pitch) < 1).any() or (
        -(-layer.sizes // _n_columns(widths, pitch)) * pitch > layer.height
    ).any():
        pitch *= 0.97
    columns = np.minimum(_n_columns(widths, pitch), layer.sizes)
    order = np.argsort(layer.group, kind="stable")
    starts = np.cumsum(layer.sizes) - layer.sizes
    place = np.empty(len(layer.group), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(starts, layer.sizes)
    row, column = np.divmod(place, columns[layer.group])
    x = centres[layer.group] + (column - (columns[layer.group] - 1) / 2) * pitch
    return x, level + layer.height / 2 - (row + 0.5) * pitch, 0.7 * pitch


def _n_columns(widths: np.ndarray, pitch: float) -> np.ndarray:
    """How many marks fit side by side into blocks of these widths."""
    inner = np.maximum(0.86 * widths, 0.94 * widths - 0.1)
    return np.floor(inner / pitch).astype(np.int64)


def _draw_marks(axes: Axes, layer: _Layer, x: np.ndarray, y: np.ndarray, diameter: float) -> None:
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


def _draw_edges(
    axes: Axes,
    layers: Sequence[_Layer],
    centres: Sequence[np.ndarray],
    y: Sequence[float],
    depth: int,
) -> None:
    """Lines up from the groups of a layer; heavy where the message carries fresh noise."""
    upper, layer = layers[depth - 1], layers[depth]
    start = y[depth - 1] - upper.packed * (upper.height / 2 + NUMBER_HEIGHT)
    end = y[depth] + layer.packed * layer.height / 2
    # Upright at both ends, so that no line runs through the names beside the marks.
    progress = np.linspace(0, 1, 33)
    across = progress**2 * (3 - 2 * progress)
    x_start, x_end = centres[depth - 1][layer.parents, None], centres[depth][:, None]
    x = x_start + (x_end - x_start) * across
    segments = np.stack([x, np.broadcast_to(start + (end - start) * progress, x.shape)], axis=2)
    noised = np.array([state.adds_noise for state in layer.states])
    for chosen, colour, width in ((~noised, EDGE, 0.8), (noised, NOISE, 1.3)):
        axes.add_collection(
            LineCollection(segments[chosen], colors=colour, linewidths=width, zorder=1),
            autolim=False,
        )


def _draw_blocks(
    axes: Axes, layer: _Layer, centres: np.ndarray, widths: np.ndarray, level: float
) -> None:
    """A pale ground below each block of marks, and the number of them."""
    for x, width, size in zip(centres, widths, layer.sizes, strict=True):
        foot = level - layer.height / 2
        size_of_block = (0.94 * width, layer.height + 0.04)
        look: dict[str, Any] = {"facecolor": "#F4F4F4", "edgecolor": "none", "zorder": 2}
        axes.add_patch(Rectangle((x - 0.47 * width, foot - 0.02), *size_of_block, **look))
        number = f"×{size:,}"
        if _text_width(number) < width:
            _write_small(axes, x, foot - 0.06, number, ha="center", va="top")


def _write_small(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    axes.text(x, y, text, fontsize=SMALL_FONT, color=TEXT, zorder=4, **options)


def _shown_names(layer: _Layer, centres: np.ndarray) -> list[str]:
    """The nodes' names, shortened; none where there is no room."""
    if layer.packed:
        return []
    names = list(map(style.shortened, layer.names))
    pitch = np.diff(centres).min() if len(centres) > 1 else np.inf
    turned = layer.kind == "device"
    needed = 1.15 * SMALL_FONT / 72 if turned else 0.25 + max(map(_text_width, names))
    return names if pitch >= needed else []


def _name_width(layer: _Layer, centres: np.ndarray) -> float:
    """Inches that the last name of a layer takes to the right of its mark's middle."""
    names = _shown_names(layer, centres)
    if layer.kind == "device" or not names:
        return 0.0
    return _name_offset(layer) + _text_width(names[-1])


def _name_offset(layer: _Layer) -> float:
    return layer.height / 2 + 0.03


def _draw_names(axes: Axes, layer: _Layer, centres: np.ndarray, level: float) -> None:
    """Names beside cloud and servers, and turned below devices."""
    turned = layer.kind == "device"
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
    look: dict[str, Any] = {"ha": "left", "va": "center", "bbox": ground}
    right, up = _name_offset(layer), 0.0
    if turned:
        right, up, look = 0.0, -0.12, {"rotation": 90, "ha": "center", "va": "top"}
    for name, x in zip(_shown_names(layer, centres), centres, strict=False):
        _write_small(axes, x + right, level + up, name, parse_math=False, **look)


def _text_width(text: str) -> float:
    """Inches in the small font, on the safe side."""
    return 0.62 * SMALL_FONT / 72 * len(text)


def _layer_label(depth: int, layer: _Layer) -> str:
    count = len(layer.names)
    if depth == 0:
        return f"layer {depth}: the {layer.kind}"
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
