"""D's clock in the terminal."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

_RATES = {"mebibyte": "MiB/s", "megabit": "Mbit/s"}


def print_clock(units: pd.DataFrame, rounds: pd.DataFrame, console: Console) -> None:
    """Seconds of a round in both readings of D's rates, and the mean of the configured plan.

    Args:
        units: of `m2fdp.tiering.tables.units_table`.
        rounds: of `m2fdp.tiering.tables.rounds_table`.
    """
    result = Table(title=Text("Seconds of a round of D's ten clients"), title_justify="left")
    result.add_column("times of")
    result.add_column("algorithm")
    for rate in _RATES.values():
        result.add_column(rate, justify="right", no_wrap=True)
        result.add_column("of FedAvg's", justify="right", no_wrap=True)
    for (model, algorithm), rows in units.groupby(["model", "algorithm"], sort=False):
        by_unit = rows.set_index("rate_unit")
        cells = []
        for unit in _RATES:
            row = by_unit.loc[unit]
            cells += [f"{row['round_s']:.1f}", f"{row['over_fedavg']:.3f}"]
        result.add_row(str(model), str(algorithm), *cells)
    console.print(result, crop=False)
    mean = rounds[["dtfl_s", "oracle_s", "fedavg_s", "splitfed_s", "fedgkt_s"]].mean()
    console.print(
        f"{len(rounds)} rounds planned, times of {rounds['model'].iloc[0]}: on average "
        f"{mean['dtfl_s']:.1f} s (times known before: {mean['oracle_s']:.1f} s, FedAvg "
        f"{mean['fedavg_s']:.1f} s, SplitFed {mean['splitfed_s']:.1f} s, FedGKT "
        f"{mean['fedgkt_s']:.1f} s)."
    )
