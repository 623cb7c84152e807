"""How all figures look: sizes, and colours per algorithm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import LogFormatter, MaxNLocator

from m2fdp.core.algorithms import ALGORITHMS
from m2fdp.core.errors import InputError, among
from m2fdp.core.own_code import is_own

DPI = 150
TITLE_SIZE, LABEL_SIZE, TICK_SIZE = 11, 10, 9
INK, GRID = "#222222", "#DDDDDD"
EPSILON_COLOUR = "#D55E00"
# Okabe-Ito, with the reference first in grey.
COLOURS = ("#555555", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#D55E00", "#56B4E9")
LINES = ((0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), "-")
MARKERS = ("s", "v", "^", "o", "D", "X", "P")
# By the algorithms' order; more of each.
ALGORITHM_COLOURS = (
    *(*COLOURS, "#882255"),
    *("#999933", "#AA4499", "#44AA99", "#332288", "#661100", "#6699CC", "#117733", "#DDCC77"),
    "#AA3377",
)
ALGORITHM_MARKERS = (*MARKERS, "*", "<", ">", "p", "h", "H", "d", "8", "$*$", "$+$")


@dataclass(frozen=True)
class Look:
    """What an algorithm's lines look like in every figure."""

    colour: str
    line: str | tuple[float, tuple[float, ...]]
    marker: str

    @property
    def of_lines(self) -> dict[str, Any]:
        """As matplotlib calls it."""
        line = {"color": self.colour, "linestyle": self.line, "linewidth": 1.8}
        return line | {"marker": self.marker, "markersize": 5}


def look(algorithm: str, variant: int = 0) -> Look:
    """An algorithm's look; its variants differ in line and marker, never in colour."""
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
    """
    if is_own(algorithm):
        return len(ALGORITHMS)
    if algorithm not in ALGORITHMS:
        raise InputError("algorithm", algorithm, f"is none of {among(algorithm, ALGORITHMS)}")
    return list(ALGORITHMS).index(algorithm)


class _PlainLogFormatter(LogFormatter):
    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:,.10g}" if super().__call__(x, pos) else ""


def new_figure(width: float, height: float) -> Figure:
    """A figure of that many inches whose parts never overlap."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def tidy(axes: Axes, x_label: str, y_label: str, *, whole_x: bool = False) -> None:
    """Labels, a light grid, and no frame where nothing is measured."""
    axes.set_xlabel(x_label, fontsize=LABEL_SIZE, color=INK)
    axes.set_ylabel(y_label, fontsize=LABEL_SIZE, color=INK)
    axes.tick_params(which="both", labelsize=TICK_SIZE, colors=INK)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if whole_x:
        axes.xaxis.set_major_locator(
            MaxNLocator(10, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
        )


def title(axes: Axes, text: str, size: float = TITLE_SIZE) -> None:
    """What a panel shows, above its left edge."""
    axes.set_title(text, fontsize=size, color=INK, loc="left")


def shortened(name: str) -> str:
    """A node's name, of fourteen characters at most."""
    return name if len(name) <= 14 else f"{name[:13]}…"


def write(
    axes: Axes, x: float, y: float, text: str, size: float, colour: str = INK, **options: Any
) -> None:
    """A text that is centred upon a point, if the options do not say otherwise."""
    options = {"ha": "center"} | options
    axes.text(x, y, text, fontsize=size, color=colour, va="center", **options)


def note(
    axes: Axes, text: str, at: tuple, points: tuple[float, float], transform: Any, **look: Any
) -> None:
    """A text so many points beside a place in some coordinates."""
    axes.annotate(text, at, points, xycoords=transform, textcoords="offset points", **look)


def headline(figure: Figure, text: str) -> None:
    """What the whole figure shows, above all panels."""
    figure.suptitle(text, fontsize=TITLE_SIZE, color=INK, x=0.01, ha="left")


def foot(figure: Figure, text: str) -> None:
    """A note below all panels."""
    figure.supxlabel(text, fontsize=TICK_SIZE, color=INK, x=0.01, ha="left")


def legend_below(
    figure: Figure, entries: tuple[Sequence[Artist], Sequence[str]], columns: int, **options: Any
) -> None:
    """One legend below all panels."""
    handles, labels = entries
    options |= {"ncols": columns, "fontsize": TICK_SIZE, "frameon": False}
    figure.legend(handles, labels, loc="outside lower center", **options)


def plain_log(axis: Axis) -> None:
    """The numbers of a logarithmic axis without powers of ten; of few decades, some between too."""
    axis.set_major_formatter(_PlainLogFormatter())
    axis.set_minor_formatter(_PlainLogFormatter(minor_thresholds=(1.5, 0.4)))


def colour_bar(figure: Figure, image: AxesImage, axes: Axes, label: str) -> None:
    """As high as the axes."""
    bar = figure.colorbar(image, cax=axes.inset_axes((1.03, 0, 0.035, 1)))
    if isinstance(image.norm, LogNorm):
        plain_log(bar.ax.yaxis)
    bar.set_label(label, fontsize=LABEL_SIZE, color=INK)
    bar.ax.tick_params(which="both", labelsize=TICK_SIZE, colors=INK)
    bar.outline.set_visible(False)
