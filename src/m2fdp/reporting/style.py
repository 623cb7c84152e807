"""How all figures look: sizes, and colours per algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.axis import Axis, YAxis
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from m2fdp.algorithms import ALGORITHMS
from m2fdp.errors import InputError
from m2fdp.own_code import is_own
from m2fdp.reporting.words import width_in_inches

DPI = 150
TITLE_SIZE, LABEL_SIZE, TICK_SIZE = 11, 10, 9
INK, GRID = "#222222", "#DDDDDD"
BAR_LEFT, BAR_WIDTH = 1.03, 0.035  # of a colour bar, in widths of the axes
_EDGE = 0.1  # inches beyond the outermost line
_GAP = 0.13  # inches between panels
_TICK = 0.15  # inches that a tick takes, and the air around its number
_LINE = 1.2  # heights of its font that a line takes
EPSILON_COLOUR = "#D55E00"
# Okabe-Ito, with the reference first in grey.
COLOURS = ("#555555", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#D55E00", "#56B4E9")
LINES = ((0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), "-")
MARKERS = ("s", "v", "^", "o", "D", "X", "P")
# By the algorithms' order; more of each.
ALGORITHM_COLOURS = (
    *(*COLOURS, "#882255"),
    *("#999933", "#AA4499", "#44AA99", "#332288", "#661100", "#6699CC", "#117733", "#DDCC77"),
)
ALGORITHM_MARKERS = (*MARKERS, "*", "<", ">", "p", "h", "H", "d", "8", "$*$")


@dataclass(frozen=True)
class Look:
    """What an algorithm's lines look like in every figure."""

    colour: str
    line: str | tuple[float, tuple[float, ...]]
    marker: str


def look(algorithm: str, variant: int = 0) -> Look:
    """An algorithm's look; its variants differ in line and marker, never in colour.

    Raises:
        InputError: there is no such algorithm.
    """
    i = position(algorithm)
    return Look(
        ALGORITHM_COLOURS[i % len(ALGORITHM_COLOURS)],
        LINES[(i + variant) % len(LINES)],
        ALGORITHM_MARKERS[(i + variant) % len(ALGORITHM_MARKERS)],
    )


def palette_look(number: int) -> Look:
    """The look of the so-many-th line where lines do not stand for algorithms.

    28 lines in a row are distinct.
    """
    return Look(
        COLOURS[(number + 1) % len(COLOURS)],  # the reference's grey last
        LINES[(number - 1) % len(LINES)],  # the first is solid
        MARKERS[number % len(MARKERS)],
    )


def position(algorithm: str) -> int:
    """The place of an algorithm in tables and legends: J's, baselines first, then H's and D's;
    users' own last.

    Raises:
        InputError: there is no such algorithm.
    """
    if is_own(algorithm):
        return len(ALGORITHMS)
    if algorithm not in ALGORITHMS:
        raise InputError("algorithm", algorithm, f"is none of {', '.join(ALGORITHMS)}")
    return list(ALGORITHMS).index(algorithm)


def new_figure(width: float, height: float) -> Figure:
    """A figure of that many inches whose parts never overlap."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def new_column(
    width: float, height: float, ratios: Sequence[float] = (1.0,)
) -> tuple[Figure, list[Axes]]:
    """A figure of panels one below the other, which share their x axis; `settle` it at the end.

    Args:
        ratios: of the panels' heights.
    """
    figure = Figure(figsize=(width, height), dpi=DPI)
    grid = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)
    panels = list(grid[:, 0])
    for axes in panels:
        # No power of ten apart, for which there is no room above the panel.
        axes.ticklabel_format(style="plain", useOffset=False)
    return figure, panels


def settle(figure: Figure, panels: Sequence[Axes], bar: str = "", below: float = 0.0) -> None:
    """Give the panels of a column the room that their titles, numbers and labels leave.

    A constrained layout would draw all of it twice to find out, in half the time that the figure
    takes.

    Args:
        bar: the label of the colour bar that `colour_bar` has put beside the last panel.
        below: inches for what else is at the bottom.
    """
    width, height = figure.get_size_inches()
    left = max(_room_of_numbers(axes.yaxis) + _room_of_label(axes.get_ylabel()) for axes in panels)
    top = _room_of_title(panels[0].get_title(loc="left"))
    beneath = _room_of_numbers(panels[-1].xaxis)
    bottom = beneath + _room_of_label(panels[-1].get_xlabel()) + below
    across = width - left - _EDGE
    if bar:
        axis = panels[-1].child_axes[0].yaxis
        beside = _room_of_numbers(axis)
        across = (across - beside - _room_of_label(bar)) / (BAR_LEFT + BAR_WIDTH)
        # Unlike at the left, a label begins at this place with its top.
        axis.set_label_coords(1 + (beside + LABEL_SIZE / 72) / (BAR_WIDTH * across), 0.5)
    figure.subplots_adjust(
        left=left / width,
        right=(left + across) / width,
        bottom=bottom / height,
        top=1 - top / height,
        hspace=_gaps(height - bottom - top, len(panels)),
    )
    for axes in panels:
        axes.yaxis.set_label_coords(-_room_of_numbers(axes.yaxis) / across, 0.5)
    high = panels[-1].get_position().height * height
    panels[-1].xaxis.set_label_coords(0.5, -beneath / high)


def _gaps(height: float, n: int) -> float:
    """The gaps between panels, as Matplotlib counts them: in mean heights of panels."""
    return n * _GAP / (height - (n - 1) * _GAP)


def _room_of_label(text: str) -> float:
    return _LINE * LABEL_SIZE / 72 + 0.05 if text else 0.0


def _room_of_title(text: str) -> float:
    return (_LINE * TITLE_SIZE * (text.count("\n") + 1) + 6) / 72 if text else _EDGE


def _room_of_numbers(axis: Axis) -> float:
    """Inches from the axes to where the label of the axis may begin."""
    major = axis.get_major_formatter().format_ticks(list(axis.get_majorticklocs()))
    if not isinstance(axis, YAxis):
        lines = max((text.count("\n") + 1 for text in major), default=0)
        return _LINE * TICK_SIZE / 72 * lines + _TICK
    # Where a logarithmic axis spans less than a decade, the numbers are at the small ticks.
    minor = axis.get_minor_formatter().format_ticks(list(axis.get_minorticklocs()))
    widths = [
        width_in_inches(line, size)
        for texts, size in ((major, TICK_SIZE), (minor, LABEL_SIZE))
        for text in texts
        for line in text.split("\n")
    ]
    return max(widths, default=0.0) + _TICK


def tidy(axes: Axes, x_label: str, y_label: str, *, whole_x: bool = False) -> None:
    """Labels, a light grid, and no frame where nothing is measured."""
    axes.set_xlabel(x_label, fontsize=LABEL_SIZE, color=INK)
    axes.set_ylabel(y_label, fontsize=LABEL_SIZE, color=INK)
    axes.tick_params(labelsize=TICK_SIZE, colors=INK)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if whole_x:
        axes.xaxis.set_major_locator(
            MaxNLocator(10, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
        )


def colour_bar(figure: Figure, image: AxesImage, axes: Axes, label: str) -> None:
    """As high as the axes."""
    bar = figure.colorbar(image, cax=axes.inset_axes((BAR_LEFT, 0, BAR_WIDTH, 1)))
    bar.set_label(label, fontsize=LABEL_SIZE, color=INK)
    bar.ax.tick_params(labelsize=TICK_SIZE, colors=INK)
    bar.outline.set_visible(False)
