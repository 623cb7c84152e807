"""Comparisons of named things: a row each, a dot at its mean over the seeds in Student's interval,
its number beside it, on an axis where the values are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from m2fdp.claims.intervals import LEVEL, Summary
from m2fdp.claims.measures import MEASURES
from m2fdp.reporting import style
from m2fdp.reporting.tables import written

INTERVAL = f"mean and {LEVEL:.0%} interval".replace("%", " %")
_DECADES = 30  # of the largest mean over the least: an axis of such values is logarithmic
_MARGIN = 0.06  # of the axis, on either side


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
        look, places = of_label[0].look, [dot.place for dot in of_label]
        means = [dot.summary.mean for dot in of_label]
        ends = [dot.interval for dot in of_label]
        axes.errorbar(
            means,
            places,
            xerr=[
                [mean - low for mean, (low, _) in zip(means, ends, strict=True)],
                [high - mean for mean, (_, high) in zip(means, ends, strict=True)],
            ],
            color=look.colour,
            linestyle="none",
            elinewidth=1.8,
            marker=look.marker,
            markersize=5.5,
            capsize=3,
            label=label,
        )
    for dot in dots:
        number = written(measure, dot.summary.mean)
        text = number if not dot.note else f"{number} ({dot.note})"
        axes.annotate(
            text,
            (1, dot.place),
            xycoords=axes.get_yaxis_transform(),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=style.INK,
            fontsize=style.TICK_SIZE,
        )
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
