"""Figures of D's clock. Every title says whose times are shown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from m2fdp.reporting import style

RATES = {"mebibyte": "MiB/s", "megabit": "Mbit/s"}
_DTFL, _ORACLE, _FEDAVG, _SPLITFED, _FEDGKT = (style.COLOURS[i] for i in (3, 2, 0, 5, 4))
_PRINTED, _OWN = style.COLOURS[1], style.COLOURS[3]
WIDTH = 0.38  # of a bar beside another
_LINES = (
    ("splitfed_s", "SplitFed", _SPLITFED, ":"),
    ("fedgkt_s", "FedGKT", _FEDGKT, (0, (3, 1, 1, 1, 1, 1))),
    ("fedavg_s", "FedAvg", _FEDAVG, "--"),
    ("dtfl_s", "DTFL", _DTFL, "-"),
    ("oracle_s", "times known before", _ORACLE, "-."),
)


def tiers_over_rounds(table: pd.DataFrame) -> Figure:
    """Who trains how much, and what the rounds take, over the rounds of the plan.

    Args:
        table: rows of `m2fdp.tiers.tables.rounds_table`.
    """
    figure = style.new_figure(8.0, 6.0)
    times, tiers = figure.subplots(2, 1, sharex=True)
    plot_lines(times, table, "round", marker="")
    times.set_yscale("log")
    style.tidy(times, "", "seconds of a round")
    style.legend_below(figure, times.get_legend_handles_labels(), len(_LINES))
    names = [name for name in table.columns if name.startswith("tier_")]
    shades = np.linspace(0.15, 0.95, len(names))
    bottoms = np.zeros(len(table))
    for name, shade in zip(names, shades, strict=True):
        blue = (1 - shade, 1 - 0.6 * shade, 1 - 0.3 * shade)
        tiers.bar(table["round"], table[name], 1.0, bottoms, color=blue, label=name[5:])
        bottoms = bottoms + table[name]
    tiers.legend(title="tier", fontsize=style.TICK_SIZE, loc="center left", bbox_to_anchor=(1, 0.5))
    style.tidy(tiers, "round", "clients", whole_x=True)
    clock_title(figure, table, "Tiers over rounds")
    return figure


def both_units(table: pd.DataFrame) -> Figure:
    """Seconds over FedAvg's by what a rate counts, a panel a model.

    Args:
        table: rows of `m2fdp.tiers.tables.units_table`.
    """
    figure = style.new_figure(10.0, 4.2)
    models = list(dict.fromkeys(table["model"]))
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        rows = table[table["model"] == model]
        names = list(dict.fromkeys(rows["algorithm"]))
        for place, (unit, rate) in enumerate(RATES.items()):
            chosen = rows[rows["rate_unit"] == unit].set_index("algorithm").loc[names]
            bars = axes.bar(
                side_by_side(len(names), place),
                chosen["over_fedavg"],
                WIDTH,
                color=(_OWN, _PRINTED)[place],
                label=f"rates in {rate}",
            )
            axes.bar_label(bars, [f"{s:.0f} s" for s in chosen["round_s"]], fontsize=7)
        axes.axhline(1.0, color=style.INK, linewidth=0.8, linestyle="--")
        axes.set_yscale("log")
        style.tidy(axes, "", "a round over FedAvg's" if axes is panels[0] else "")
        broken = [name.replace(" ", "\n") for name in names]
        axes.set_xticks(range(len(names)), broken, fontsize=7)
        style.title(axes, f"times of {model}", style.LABEL_SIZE)
    panels[0].legend(fontsize=style.TICK_SIZE, frameon=False)
    style.headline(figure, "D's ten clients at the start")
    return figure


def side_by_side(count: int, place: int) -> np.ndarray:
    """Where the bars of the first (0) or second (1) of two series stand."""
    return np.arange(count) + 0.4 * (place - 0.5)


def plot_lines(
    axes: Axes, table: pd.DataFrame, x: str, lines: Sequence[tuple] = _LINES, marker: str = "o"
) -> None:
    """The columns that a table has of some, each with its label, colour and line, over one."""
    for column, label, colour, line in lines:
        if column in table:
            look = {"color": colour, "linestyle": line, "marker": marker, "label": label}
            axes.plot(table[x], table[column], **look)


def clock_title(figure: Figure, table: pd.DataFrame, text: str) -> None:
    """What the figure shows, and of which model's times."""
    style.headline(figure, f"{text} (times of {table['model'].iloc[0]})")
