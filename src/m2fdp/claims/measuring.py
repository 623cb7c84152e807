"""The measures of runs, computed from what the runs have told, and every two arms compared."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from m2fdp.claims import measures
from m2fdp.claims.frames import ARM, comparable, swept_columns
from m2fdp.claims.intervals import summarise
from m2fdp.core.metrics import ACCURACY, DELAY


def measure_runs(
    runs: pd.DataFrame,
    history: pd.DataFrame,
    decisions: pd.DataFrame | None = None,
    target_accuracy: float | None = None,
    known: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The runs with a column for each measure.

    Args:
        runs: one row a run, of `m2fdp.studies.tracked_runs.load_runs`; its index is run_id.
        history: one row a run and evaluated round, of `load_history`.
        decisions: one row a run and round, of `load_decisions`; None = none had a controller.
        known: one row a run, of `load_metrics`; None = none had any.
        target_accuracy: what the measures to a target wait for; None = there are none.

    Returns:
        The columns of `runs`, and all other measures as float, NaN where a run has none. Volatility
        is the sample standard deviation of the accuracy's differences from one evaluation to the
        next in the second half of the rounds (J Sec. VI-B). Means leave out the first round.
    """
    history = history.sort_values(["run_id", "round"])
    last = history.drop_duplicates("run_id", keep="last").set_index("run_id")
    columns: dict[str, pd.Series] = {measures.VOLATILITY.name: _volatility(history)}
    if target_accuracy is not None:
        first = to_target(history, target_accuracy)
        columns |= {name: first[name] for name in measures.TO_TARGET.values()}
    columns[measures.SECONDS_PER_ROUND.name] = last[DELAY.name] / last["round"]
    means = pd.DataFrame(dtype=float)
    if decisions is not None:
        chosen = decisions[decisions["round"] > 1].sort_values(["run_id", "round"])
        means = chosen.groupby("run_id").mean()
    for measure in measures.tracked(of_rounds=True):
        columns[measure] = means.get(measure, pd.Series(dtype=float))
    if measures.FANOUTS in runs:
        fanouts = runs[measures.FANOUTS].map(comparable)
        columns |= {
            measures.DEVICES: fanouts.map(_nodes),
            measures.ZONES: fanouts.map(lambda x: _nodes(x, 1)),
        }
    for measure in measures.tracked(of_rounds=False):
        columns[measure] = pd.DataFrame(known).get(measure, pd.Series(dtype=float))
    return runs.assign(**{k: v.reindex(runs.index).astype(float) for k, v in columns.items()})


def to_target(history: pd.DataFrame, target_accuracy: float) -> pd.DataFrame:
    """Rounds, energy and delay to the first evaluation of `history` that reaches an accuracy."""
    reached = history[history[ACCURACY.name] >= target_accuracy].sort_values(["run_id", "round"])
    first = reached.drop_duplicates("run_id").set_index("run_id")
    return first[list(measures.TO_TARGET)].rename(columns=measures.TO_TARGET)


def _volatility(history: pd.DataFrame) -> pd.Series:
    last = history.groupby("run_id")["round"].transform("max")
    late = history[2 * history["round"] > last]
    # NaN without two differences.
    return late.groupby("run_id")[ACCURACY.name].agg(lambda x: x.diff().iloc[1:].std())


def _nodes(fanouts: object, above: int = 0) -> float:
    """How many nodes a tree has so many layers above the devices."""
    of_layers = fanouts[: len(fanouts) - above] if isinstance(fanouts, tuple) else (math.nan,)
    return float(math.prod(of_layers))


_NUMBERS = ["seeds", "difference", "low", "high"]


def paired_differences(measured: pd.DataFrame) -> pd.DataFrame:
    """Final accuracies of every two arms at one version and grid values, paired by two seeds or
    more: the 95 % interval of first less other (`_over`)."""
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
        if summary.n > 1:  # one tells no interval
            low, high = summary.interval()
            over = dict(zip((f"{name}_over" for name in names), other, strict=True))
            numbers = zip(_NUMBERS, (summary.n, summary.mean, low, high), strict=True)
            yield dict(zip(names, one, strict=True)) | over | dict(numbers)
