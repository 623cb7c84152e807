"""D's printed tables beside the clock's: `python -m tools.clock_tables FOLDER`.

Each table of D becomes a CSV file and a figure. Every title says whose times are shown.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from m2fdp.core.config import Config
from m2fdp.reporting import style
from m2fdp.reporting.clock_figures import WIDTH, clock_title, plot_lines, side_by_side
from m2fdp.tiers import tables

_DTFL, _ORACLE, _FEDAVG = (style.COLOURS[i] for i in (3, 2, 0))
_PRINTED, _OWN = style.COLOURS[1], style.COLOURS[3]


def one_tier_for_all(table: pd.DataFrame) -> Figure:
    """D Table 1, over FedAvg's total: a run's seconds as printed beside a round's by the clock.

    Args:
        table: rows of `m2fdp.tiers.tables.table_1`; tier 0 is FedAvg. Those of rates
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
            at, bottoms = side_by_side(len(rows), place), np.zeros(len(rows))
            for part, alpha in (("computation", 1.0), ("communication", 0.4)):
                seconds = rows[f"{prefix}{part}_s"] / fedavg[total]
                look = {"color": colour, "alpha": alpha, "label": f"{part} ({who})"}
                axes.bar(at, seconds, WIDTH, bottoms, **look)
                bottoms = bottoms + seconds
        names = ["FedAvg" if tier == 0 else f"tier {tier}" for tier in rows["tier"]]
        axes.set_xticks(range(len(rows)), names, rotation=30)
        style.tidy(axes, "", "seconds over FedAvg's" if axes is panels[0] else "")
        style.title(axes, f"case {case}", style.LABEL_SIZE)
    style.legend_below(figure, panels[0].get_legend_handles_labels(), 2)
    clock_title(figure, table, "D Table 1: all clients in one tier of six")
    return figure


def normalised_times(table: pd.DataFrame) -> Figure:
    """D Table 2: times by tier over tier 1's, as measured by D and by FLOPs.

    Args:
        table: rows of `m2fdp.tiers.tables.table_2`.
    """
    figure = style.new_figure(8.0, 3.8)
    for axes, side in zip(figure.subplots(1, 2), ("client", "server"), strict=True):
        lines = ((f"printed_{side}", "D Table 2", _PRINTED, "-"), (side, "by FLOPs", _OWN, "-"))
        plot_lines(axes, table, "tier", lines)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=style.TICK_SIZE, frameon=False)
        style.tidy(axes, "tier of six", f"{side}'s time over tier 1's", whole_x=True)
    clock_title(figure, table, "D Table 2: normalised times")
    return figure


def rounds_by_clients(table: pd.DataFrame) -> Figure:
    """D Table 4: a tenth of 20 to 200 clients, who share the same records.

    Args:
        table: rows of `m2fdp.tiers.tables.table_4`.
    """
    figure = style.new_figure(9.0, 4.0)
    seconds, ratios = figure.subplots(1, 2)
    plot_lines(seconds, table, "clients")
    seconds.set_yscale("log")
    seconds.legend(fontsize=style.TICK_SIZE, frameon=False)
    style.tidy(seconds, "clients", "mean seconds of a round")
    lines = (
        ("printed_dtfl_over_fedavg", "D, totals to the target", _PRINTED, "-"),
        ("dtfl_over_fedavg", "clock, a round", _DTFL, "-"),
        ("oracle_over_fedavg", "clock, times known before", _ORACLE, "-."),
    )
    plot_lines(ratios, table, "clients", lines)
    ratios.set_ylim(bottom=0)
    ratios.legend(fontsize=style.TICK_SIZE, frameon=False)
    style.tidy(ratios, "clients", "DTFL over FedAvg")
    clock_title(figure, table, "D Table 4: more clients")
    return figure


def splits(table: pd.DataFrame) -> Figure:
    """D Table 11: what each cut leaves the client, and sends; the last M cuts are tiers 1 … M.

    Args:
        table: rows of `m2fdp.tiers.tables.table_11`.
    """
    rows = table[table["tiers"] == table["tiers"].max()]
    figure = style.new_figure(9.0, 4.0)
    work, sent = figure.subplots(1, 2)
    at = np.arange(len(rows))
    client = rows["client_mflop"]
    work.barh(at, client, color=_OWN, label="client")
    work.barh(at, rows["server_mflop"], left=client, color=_FEDAVG, alpha=0.5, label="server")
    style.tidy(work, "MFLOP a record, forward and backward", "the client's modules")
    for place, (column, colour, what) in enumerate(
        (("record_bytes", _PRINTED, "a record"), ("model_bytes", _ORACLE, "the model"))
    ):
        bars = side_by_side(len(rows), place)
        sent.barh(bars, rows[column] / 2**10, WIDTH, color=colour, label=f"of {what}")
    sent.set_xscale("log")
    style.tidy(sent, "KiB sent", "")
    for axes in (work, sent):
        names = rows["client"] if axes is work else [""] * len(rows)
        axes.set_yticks(at, names)
        axes.invert_yaxis()
        axes.legend(fontsize=style.TICK_SIZE, framealpha=0.9, loc="upper right")
    clock_title(figure, table, "D Table 11: the seven cuts; M tiers are the last M of them")
    return figure


def rounds_by_tiers(table: pd.DataFrame) -> Figure:
    """D Fig. 3: a round's mean over the number of tiers, in both cases.

    Args:
        table: rows of `m2fdp.tiers.tables.figure_3`.
    """
    figure = style.new_figure(9.0, 4.0)
    panels = figure.subplots(1, 2)
    for axes, case in zip(panels, table["case"].unique(), strict=True):
        rows = table[table["case"] == case]
        plot_lines(axes, rows, "tiers")
        axes.set_ylim(bottom=0)
        style.tidy(axes, "M, tiers", "mean seconds of a round", whole_x=True)
        style.title(axes, f"case {case}", style.LABEL_SIZE)
    style.legend_below(figure, panels[0].get_legend_handles_labels(), 3)
    clock_title(figure, table, "D Fig. 3: the number of tiers")
    return figure


# By the files' name: what tabulates, and what draws.
TABLES: dict[str, tuple[Callable[[Config], pd.DataFrame], Callable[[pd.DataFrame], Figure]]] = {
    "clock_table1": (tables.table_1, one_tier_for_all),
    "clock_table2": (tables.table_2, normalised_times),
    "clock_table4": (tables.table_4, rounds_by_clients),
    "clock_table11": (tables.table_11, splits),
    "clock_fig3": (tables.figure_3, rounds_by_tiers),
}


def write_tables(folder: Path, config: Config) -> None:
    """Write each table, and its figure, of a configuration's clock."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (tabulate, draw) in TABLES.items():
        table = tabulate(config)
        table.to_csv(folder / f"{name}.csv", index=False)
        draw(table).savefig(folder / f"{name}.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    write_tables(parser.parse_args().folder, Config())
