"""Figures of D's clock. Every title says whose times are shown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from m2fdp.reporting import style

DTFL, ORACLE, FEDAVG, _SPLITFED, _FEDGKT = (style.COLOURS[i] for i in (3, 2, 0, 5, 4))
LINES = (
    ("splitfed_s", "SplitFed", _SPLITFED, ":"),
    ("fedgkt_s", "FedGKT", _FEDGKT, (0, (3, 1, 1, 1, 1, 1))),
    ("fedavg_s", "FedAvg", FEDAVG, "--"),
    ("dtfl_s", "DTFL", DTFL, "-"),
    ("oracle_s", "times known before", ORACLE, "-."),
)


def tiers_over_rounds(table: pd.DataFrame) -> Figure:
    """Who trains how much, and what the rounds take, over the rounds of the plan.

    Args:
        table: rows of `m2fdp.tiers.plan.rounds_table`.
    """
    figure = style.new_figure(8.0, 6.0)
    times, tiers = figure.subplots(2, 1, sharex=True)
    plot_lines(times, table, "round", marker="")
    times.set_yscale("log")
    style.tidy(times, "", "seconds of a round")
    style.legend_below(figure, times.get_legend_handles_labels(), len(LINES))
    names = [name for name in table.columns if name.startswith("tier_")]
    shades = np.linspace(0.15, 0.95, len(names))
    bottoms = np.zeros(len(table))
    for name, shade in zip(names, shades, strict=True):
        blue = (1 - shade, 1 - 0.6 * shade, 1 - 0.3 * shade)
        tiers.bar(table["round"], table[name], 1.0, bottoms, color=blue, label=name[5:])
        bottoms = bottoms + table[name]
    tiers.legend(title="tier", fontsize=style.TICK_SIZE, loc="center left", bbox_to_anchor=(1, 0.5))
    style.tidy(tiers, "round", "clients", whole_x=True)
    title(figure, table, "Tiers over rounds")
    return figure


def plot_lines(
    axes: Axes, table: pd.DataFrame, x: str, lines: Sequence[tuple] = LINES, marker: str = "o"
) -> None:
    """The columns that a table has of some, each with its label, colour and line, over one."""
    for column, label, colour, line in lines:
        if column in table:
            look = {"color": colour, "linestyle": line, "marker": marker, "label": label}
            axes.plot(table[x], table[column], **look)


def title(figure: Figure, table: pd.DataFrame, text: str) -> None:
    """What the figure shows, and of which model's times."""
    style.headline(figure, f"{text} (times of {table['model'].iloc[0]})")
