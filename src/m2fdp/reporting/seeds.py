"""What figures of means over seeds share: the means, their lines and bands, the legend below."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from m2fdp.core.errors import InputError
from m2fdp.core.metrics import ACCURACY, ENERGY
from m2fdp.reporting import style


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


def refuse_twice(key: str, table: pd.DataFrame, columns: Sequence[str], row: str) -> None:
    """Refuse a table with two rows that are equal in some columns.

    Args:
        row: how a row is called, a format of its columns.
    """
    twice = table[table.duplicated(list(columns))]
    if len(twice):
        remedy = "is there more than once; keep one run, or compare by the parameter that differs"
        raise InputError(key, row.format(**twice.iloc[0]), remedy)


def draw_band(
    axes: Axes, x: pd.Series, means: pd.DataFrame, look: style.Look, number: int, label: str
) -> None:
    """A line of means in a band of one standard deviation.

    Args:
        number: the line's place in its figure, from 0.
    """
    step = max(1, len(means) // 8)
    axes.plot(
        x,
        means["mean"],
        color=look.colour,
        linestyle=look.line,
        linewidth=1.8,
        marker=look.marker,
        markersize=5,
        markevery=(number % step, step),  # staggered: lines that coincide show both their markers
        label=label,
    )
    if means["std"].notna().any():
        axes.fill_between(
            x,
            means["mean"] - means["std"],
            means["mean"] + means["std"],
            color=look.colour,
            alpha=0.15,
            linewidth=0,
        )


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
