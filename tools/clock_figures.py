"""Figures of `tools.clock_tables`. Every title says whose times are shown."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from m2fdp.reporting import room_figures, style
from tools import clock_tables as tables

RATES = {"mebibyte": "MiB/s", "megabit": "Mbit/s"}
_PRINTED, _OWN = style.COLOURS[1], style.COLOURS[3]
_WIDTH = 0.38  # of a bar beside another


def both_units(table: pd.DataFrame) -> Figure:
    """Seconds over FedAvg's by what a rate counts, a panel a model.

    Args:
        table: rows of `tools.clock_tables.units_table`.
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
                _side_by_side(len(names), place),
                chosen["over_fedavg"],
                _WIDTH,
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


def one_tier_for_all(table: pd.DataFrame) -> Figure:
    """D Table 1, over FedAvg's total: a run's seconds as printed beside a round's by the clock.

    Args:
        table: rows of `tools.clock_tables.table_1`; tier 0 is FedAvg. Those of rates
            in MiB/s are drawn.
    """
    figure = style.new_figure(10.0, 4.2)
    panels = figure.subplots(1, 2, sharey=True)
    drawn = table[table["rate_unit"] == "mebibyte"]
    for axes, case in zip(panels, drawn["case"].unique(), strict=True):
        rows = drawn[drawn["case"] == case]
        fedavg = rows[rows["tier"] == 0].iloc[0]
        for place, (prefix, total, colour, who) in enumerate(
            (
                ("printed_", "printed_total_s", _PRINTED, "D, to 80 %"),
                ("", "round_s", _OWN, "clock, a round"),
            )
        ):
            at, bottoms = _side_by_side(len(rows), place), np.zeros(len(rows))
            for part, alpha in (("computation", 1.0), ("communication", 0.4)):
                seconds = rows[f"{prefix}{part}_s"] / fedavg[total]
                look = {"color": colour, "alpha": alpha, "label": f"{part} ({who})"}
                axes.bar(at, seconds, _WIDTH, bottoms, **look)
                bottoms = bottoms + seconds
        names = ["FedAvg" if tier == 0 else f"tier {tier}" for tier in rows["tier"]]
        axes.set_xticks(range(len(rows)), names, rotation=30)
        style.tidy(axes, "", "seconds over FedAvg's" if axes is panels[0] else "")
        style.title(axes, f"case {case}", style.LABEL_SIZE)
    style.legend_below(figure, panels[0].get_legend_handles_labels(), 2)
    room_figures.title(figure, table, "D Table 1: all clients in one tier of six")
    return figure


def normalised_times(table: pd.DataFrame) -> Figure:
    """D Table 2: times by tier over tier 1's, as measured by D and by FLOPs.

    Args:
        table: rows of `tools.clock_tables.table_2`.
    """
    figure = style.new_figure(8.0, 3.8)
    for axes, side in zip(figure.subplots(1, 2), ("client", "server"), strict=True):
        lines = ((f"printed_{side}", "D Table 2", _PRINTED, "-"), (side, "by FLOPs", _OWN, "-"))
        room_figures.plot_lines(axes, table, "tier", lines)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=style.TICK_SIZE, frameon=False)
        style.tidy(axes, "tier of six", f"{side}'s time over tier 1's", whole_x=True)
    room_figures.title(figure, table, "D Table 2: normalised times")
    return figure


def rounds_by_clients(table: pd.DataFrame) -> Figure:
    """D Table 4: a tenth of 20 to 200 clients, who share the same records.

    Args:
        table: rows of `tools.clock_tables.table_4`.
    """
    figure = style.new_figure(9.0, 4.0)
    seconds, ratios = figure.subplots(1, 2)
    room_figures.plot_lines(seconds, table, "clients")
    seconds.set_yscale("log")
    seconds.legend(fontsize=style.TICK_SIZE, frameon=False)
    style.tidy(seconds, "clients", "mean seconds of a round")
    lines = (
        ("printed_dtfl_over_fedavg", "D, totals to the target", _PRINTED, "-"),
        ("dtfl_over_fedavg", "clock, a round", room_figures.DTFL, "-"),
        ("oracle_over_fedavg", "clock, times known before", room_figures.ORACLE, "-."),
    )
    room_figures.plot_lines(ratios, table, "clients", lines)
    ratios.set_ylim(bottom=0)
    ratios.legend(fontsize=style.TICK_SIZE, frameon=False)
    style.tidy(ratios, "clients", "DTFL over FedAvg")
    room_figures.title(figure, table, "D Table 4: more clients")
    return figure


def splits(table: pd.DataFrame) -> Figure:
    """D Table 11: what each cut leaves the client, and sends; the last M cuts are tiers 1 … M.

    Args:
        table: rows of `tools.clock_tables.table_11`.
    """
    rows = table[table["tiers"] == table["tiers"].max()]
    figure = style.new_figure(9.0, 4.0)
    work, sent = figure.subplots(1, 2)
    at = np.arange(len(rows))
    client = rows["client_mflop"]
    work.barh(at, client, color=_OWN, label="client")
    work.barh(
        at, rows["server_mflop"], left=client, color=room_figures.FEDAVG, alpha=0.5, label="server"
    )
    style.tidy(work, "MFLOP a record, forward and backward", "the client's modules")
    for place, (column, colour, what) in enumerate(
        (("record_bytes", _PRINTED, "a record"), ("model_bytes", room_figures.ORACLE, "the model"))
    ):
        bars = _side_by_side(len(rows), place)
        sent.barh(bars, rows[column] / 2**10, _WIDTH, color=colour, label=f"of {what}")
    sent.set_xscale("log")
    style.tidy(sent, "KiB sent", "")
    for axes in (work, sent):
        names = rows["client"] if axes is work else [""] * len(rows)
        axes.set_yticks(at, names)
        axes.invert_yaxis()
        axes.legend(fontsize=style.TICK_SIZE, framealpha=0.9, loc="upper right")
    room_figures.title(figure, table, "D Table 11: the seven cuts; M tiers are the last M of them")
    return figure


def rounds_by_tiers(table: pd.DataFrame) -> Figure:
    """D Fig. 3: a round's mean over the number of tiers, in both cases.

    Args:
        table: rows of `tools.clock_tables.figure_3`.
    """
    figure = style.new_figure(9.0, 4.0)
    panels = figure.subplots(1, 2)
    for axes, case in zip(panels, table["case"].unique(), strict=True):
        rows = table[table["case"] == case]
        room_figures.plot_lines(axes, rows, "tiers")
        axes.set_ylim(bottom=0)
        style.tidy(axes, "M, tiers", "mean seconds of a round", whole_x=True)
        style.title(axes, f"case {case}", style.LABEL_SIZE)
    style.legend_below(figure, panels[0].get_legend_handles_labels(), 3)
    room_figures.title(figure, table, "D Fig. 3: the number of tiers")
    return figure


def _side_by_side(count: int, place: int) -> np.ndarray:
    """Where the bars of the first (0) or second (1) of two series stand."""
    return np.arange(count) + 0.4 * (place - 0.5)


DRAWN = {
    "units": (tables.units_table, both_units),
    "table1": (tables.table_1, one_tier_for_all),
    "table2": (tables.table_2, normalised_times),
    "table4": (tables.table_4, rounds_by_clients),
    "table11": (tables.table_11, splits),
    "fig3": (tables.figure_3, rounds_by_tiers),
}
