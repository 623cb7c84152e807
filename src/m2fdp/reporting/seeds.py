"""Means over seeds: lines in bands, and dots in Student's intervals of named things."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from m2fdp.claims.intervals import LEVEL, Summary
from m2fdp.claims.measures import MEASURES
from m2fdp.core.metrics import ACCURACY, ENERGY
from m2fdp.reporting import style
from m2fdp.reporting.tables import refuse_twice, written

INTERVAL = f"mean and {LEVEL:.0%} interval".replace("%", " %")
_DECADES = 30  # of the largest mean over the least: an axis of such values is logarithmic
_MARGIN = 0.06  # of the axis, on either side


def over_seeds(history: pd.DataFrame, measure: str = ACCURACY.name) -> pd.DataFrame:
    """A measure and the energy by round, means of the rounds that all seeds evaluated.

    Args:
        history: one row a seed and evaluated round with algorithm, seed, round, the measure and
            the energy.
        measure: the column whose means are taken.

    Returns:
        round, mean, the energy and std, the measure's sample standard deviation (NaN for one seed).
    """
    refuse_twice("history", history, ["seed", "round"], "{algorithm}, seed {seed}, round {round}")
    # Sorted, so that sums do not depend on the order of the rows.
    groups = history.sort_values("seed").groupby("round")
    values = groups[measure]
    energy = {ENERGY.name: groups[ENERGY.name].mean()}
    means = pd.DataFrame({"mean": values.mean(), **energy, "std": values.std()})
    return means[groups.size() == history["seed"].nunique()].reset_index()


def draw_band(
    axes: Axes, x: pd.Series, means: pd.DataFrame, look: style.Look, number: int, label: str
) -> None:
    """A line of means in a band of one standard deviation."""
    step = max(1, len(means) // 8)
    # Staggered, so that lines that coincide show both their markers.
    axes.plot(x, means["mean"], label=label, markevery=(number % step, step), **look.of_lines)
    if means["std"].notna().any():
        low, high = means["mean"] - means["std"], means["mean"] + means["std"]
        axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)


def legend_below(
    figure: Figure, handles: Sequence[Artist], labels: Sequence[str], title: str | None = None
) -> None:
    """One legend of all panels, in as many columns as fit; the figure grows by its rows."""
    width, height = figure.get_size_inches()
    widest = max(map(len, labels))
    columns = min(len(labels), max(1, int(width / (0.7 + 0.075 * widest))))
    rows = -(-len(labels) // columns) + (title is not None)
    figure.set_size_inches(width, height + 0.25 * rows)
    look = {"title": title, "title_fontsize": style.TICK_SIZE, "handlelength": 3.2}
    style.legend_below(figure, (handles, labels), columns, **look)


@dataclass(frozen=True)
class Dot:
    """One row of the comparison, or one of several in a row."""

    place: float  # from above: row 0 is the first
    label: str  # in a legend
    summary: Summary
    look: style.Look
    note: str = ""  # behind the number

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean; the mean alone where the seeds tell none."""
        low, high = self.summary.interval()
        return (low, high) if math.isfinite(low + high) else (self.summary.mean, self.summary.mean)


def draw_dots(axes: Axes, dots: Sequence[Dot], names: Sequence[str], measure: str) -> None:
    """Dots in rows below each other; an infinite one is a number only, as is one that is NaN.

    Args:
        names: the rows' names, from above; "" where a panel beside this one names them.
    """
    drawn = [dot for dot in dots if math.isfinite(dot.summary.mean)]
    for label in dict.fromkeys(dot.label for dot in dots):
        of_label = [dot for dot in drawn if dot.label == label]
        if not of_label:
            continue
        means = np.array([dot.summary.mean for dot in of_label])
        low, high = np.array([dot.interval for dot in of_label]).T
        axes.errorbar(
            means,
            [dot.place for dot in of_label],
            xerr=[means - low, high - means],
            label=label,
            capsize=3,
            **of_label[0].look.of_lines | {"linestyle": "none", "markersize": 5.5},
        )
    look = {"va": "center", "color": style.INK, "fontsize": style.TICK_SIZE}
    for dot in dots:
        number = written(measure, dot.summary.mean)
        text = number if not dot.note else f"{number} ({dot.note})"
        style.note(axes, text, (1, dot.place), (8, 0), axes.get_yaxis_transform(), **look)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _fit(axes, drawn, share=MEASURES[measure].share)
    axes.set_xlabel(MEASURES[measure].label, fontsize=style.LABEL_SIZE, color=style.INK)


def _fit(axes: Axes, dots: Sequence[Dot], *, share: bool) -> None:
    """An axis of the values and, as far as they leave them to be seen, of their intervals."""
    spread = [0.0 if math.isnan(dot.summary.std) else dot.summary.std for dot in dots]
    means = [dot.summary.mean for dot in dots]
    ends = [dot.interval for dot in dots]
    low = min((mean - std for mean, std in zip(means, spread, strict=True)), default=0.0)
    high = max((mean + std for mean, std in zip(means, spread, strict=True)), default=1.0)
    least, largest = min(means, default=0.0), max(means, default=0.0)
    if 0 < least * _DECADES <= largest and min(end for end, _ in ends) > 0:
        axes.set_xscale("log")
        style.plain_log(axes.xaxis)
        axes.margins(x=_MARGIN)
        return
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    # Two seeds have an interval of nine deviations to either side.
    reach = high - low
    low = max(min((end for end, _ in ends), default=low), low - reach)
    high = min(max((end for _, end in ends), default=high), high + reach)
    if share:
        low, high = max(low, 0.0), min(high, 1.0)
    if high > low:
        margin = _MARGIN * (high - low)
        axes.set_xlim(low - margin, high + margin)


def row_height(rows: float) -> float:
    """Inches of a panel of so many rows of text, with its title and its axis."""
    return 0.9 + 0.2 * rows


def summary_of(point: pd.Series) -> Summary:
    """Of a mean, a sample standard deviation and how many seeds have them."""
    return Summary(float(point["mean"]), float(point["std"]), int(point["measured"]))
