"""Every two arms of a study compared seed by seed, whether or not a claim asks for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pandas as pd

from m2fdp.claims.frames import ARM, swept_columns
from m2fdp.claims.intervals import summarise
from m2fdp.core.metrics import ACCURACY

_LEAST_SEEDS = 2  # one tells no interval
_NUMBERS = ["seeds", "difference", "low", "high"]


def paired_differences(measured: pd.DataFrame) -> pd.DataFrame:
    """Final accuracies of every two arms under the same version and grid values, seed by seed.

    Args:
        measured: one row a run, of `m2fdp.claims.measures.measure_runs`.

    Returns:
        A row a pair: the swept columns other than the arm; algorithm and, where there are any, arm
        of the first, then `algorithm_over` and `arm_over` of the other; seeds, how many both have;
        difference, the mean of first less other; low and high, its 95 % interval. None of pairs
        with fewer than two seeds.
    """
    swept = swept_columns(measured.columns)
    names = ["algorithm", *([ARM] if ARM in swept else [])]
    places = [column for column in swept if column != ARM]
    columns = [*places, *names, *(f"{name}_over" for name in names), *_NUMBERS]
    groups = measured.groupby(places, dropna=False, sort=False) if places else [((), measured)]
    rows = [
        dict(zip(places, place, strict=True)) | row
        for place, runs in groups
        for row in _pairs(runs, names)
    ]
    return pd.DataFrame(rows, columns=columns)


def _pairs(runs: pd.DataFrame, names: list[str]) -> Iterator[dict[str, Any]]:
    lines = {
        name: rows.drop_duplicates("seed").set_index("seed")[ACCURACY.name].astype(float)
        for name, rows in runs.groupby(names, sort=False)
    }
    for (one, ours), (other, theirs) in itertools.combinations(lines.items(), 2):
        summary = summarise((ours - theirs).dropna().sort_index().to_numpy())
        if summary.n >= _LEAST_SEEDS:
            low, high = summary.interval()
            over = dict(zip((f"{name}_over" for name in names), other, strict=True))
            numbers = zip(_NUMBERS, (summary.n, summary.mean, low, high), strict=True)
            yield dict(zip(names, one, strict=True)) | over | dict(numbers)
