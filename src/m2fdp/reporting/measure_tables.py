"""Measures of runs in Markdown, beside their accuracies: a line for each group of seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from m2fdp.claims.frames import in_order, swept_columns
from m2fdp.claims.measures import MEASURES
from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.formatting import parameter, upper_bound
from m2fdp.reporting.style import position
from m2fdp.reporting.tables import markdown


def measure_table(measured: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """One row per algorithm, arm and swept parameters, in the algorithms' order.

    Args:
        measured: one row a run, of `m2fdp.claims.measures.measure_runs`.
        measures: names of them.

    Returns:
        algorithm, the swept columns, seeds, and each measure: its mean over the seeds that have
        it, or of an upper bound the largest.
    """
    swept = swept_columns(measured.columns)
    how = {name: "max" if MEASURES[name].bound else "mean" for name in measures}
    rows = (
        measured.sort_values("seed")
        .assign(place=measured["algorithm"].map(position))
        .groupby(["place", "algorithm", *swept], dropna=False, sort=False)
        .agg(seeds=("seed", "size"), **{name: (name, way) for name, way in how.items()})
    )
    return in_order(rows.reset_index(), ["place", "algorithm", *swept]).drop(columns="place")


def to_markdown(table: pd.DataFrame, measures: Sequence[str]) -> str:
    """Such a table in Markdown, upper bounds rounded up; a dash where no run has the measure."""
    names = [name for name in table.columns if name not in ("algorithm", "seeds", *measures)]
    rows = [
        {"algorithm": get_algorithm(row["algorithm"]).title}
        | {name: parameter(row[name]) for name in names}
        | {MEASURES[name].label: written(name, row[name]) for name in measures}
        for row in table.to_dict("records")
    ]
    return markdown(pd.DataFrame(rows), ["algorithm", *names])


def written(measure: str, value: float) -> str:
    """A measure's value, an upper bound rounded up; a dash where there is none."""
    bound = MEASURES[measure].bound and not math.isnan(value)
    return upper_bound(value) if bound else MEASURES[measure].text(value)
