"""The measures of runs, computed from what the runs have told."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from m2fdp.claims.frames import comparable
from m2fdp.claims.measures import DECISIONS, DEVICES, FANOUTS, OF_METRICS, TO_TARGET, ZONES

_LEAST_EVALUATIONS = 3


def measure_runs(
    runs: pd.DataFrame,
    history: pd.DataFrame,
    decisions: pd.DataFrame | None = None,
    target_accuracy: float | None = None,
    zones: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The runs with a column for each measure.

    Args:
        runs: one row a run, of `m2fdp.studies.tracked_runs.load_runs`; its index is run_id.
        history: one row a run and evaluated round, of `load_history`.
        decisions: one row a run and round, of `load_decisions`; None = no run had a controller.
        target_accuracy: what the measures to a target wait for; None = there are none.
        zones: one row a run, of `load_metrics`; None = no run had any.

    Returns:
        The columns of `runs`, and float

        volatility: sample standard deviation of the accuracy's differences from one evaluation to
            the next in the second half of the rounds (J Sec. VI-B, "accuracy perturbation"); NaN
            for fewer than three evaluations there.
        rounds_to_target, energy_to_target (J), delay_to_target (s): at the first evaluation that
            reaches `target_accuracy`, NaN if none does; only with a target.
        seconds_per_round: simulated, the mean over all rounds.
        local_steps, s_trusted, s_untrusted: mean of K and of the devices that take part below a
            node of layer 1, over the rounds for which (P) chose them, all but the first; NaN
            without a controller.
        devices, zones: of the network, and its lowest servers; only where the fan-outs vary.
        the measures of `OF_METRICS`: see `m2fdp.zones.table.zones_table` and
            `m2fdp.adversaries.attacks`; NaN without zones or an attack.
    """
    history = history.sort_values(["run_id", "round"])
    measured = runs.assign(volatility=_by_run(_volatility(history), runs))
    if target_accuracy is not None:
        reached = to_target(history, target_accuracy)
        for measure in reached:
            measured[measure] = _by_run(reached[measure], runs)
    last = history.drop_duplicates("run_id", keep="last").set_index("run_id")
    measured["seconds_per_round"] = _by_run(last["delay_s"] / last["round"], runs)
    names = {"K": "local_steps"}
    for decision in DECISIONS:
        means = pd.Series(dtype=float)
        if decisions is not None:
            chosen = decisions[decisions["round"] > 1].sort_values(["run_id", "round"])
            means = chosen.groupby("run_id")[decision].mean()
        measured[names.get(decision, decision)] = _by_run(means, runs)
    if FANOUTS in runs:
        measured[DEVICES] = runs[FANOUTS].map(_devices).astype(float)
        measured[ZONES] = runs[FANOUTS].map(_zones).astype(float)
    metrics = pd.DataFrame(dtype=float) if zones is None else zones
    for measure in OF_METRICS:
        measured[measure] = _by_run(metrics.get(measure, pd.Series(dtype=float)), runs)
    return measured


def to_target(history: pd.DataFrame, target_accuracy: float) -> pd.DataFrame:
    """Rounds, energy and delay to the first evaluation that reaches an accuracy.

    Args:
        history: one row a run and evaluated round: run_id, round, accuracy, energy_j, delay_s.

    Returns:
        rounds_to_target, energy_to_target (J) and delay_to_target (s) by run_id, of the runs that
        reach it.
    """
    reached = history[history["accuracy"] >= target_accuracy].sort_values(["run_id", "round"])
    first = reached.drop_duplicates("run_id").set_index("run_id")
    return first[list(TO_TARGET)].rename(columns=TO_TARGET)


def _by_run(values: pd.Series, runs: pd.DataFrame) -> pd.Series:
    return values.reindex(runs.index).astype(float)


def _volatility(history: pd.DataFrame) -> pd.Series:
    last = history.groupby("run_id")["round"].transform("max")
    late = history[2 * history["round"] > last]
    return late.groupby("run_id")["accuracy"].agg(_std_of_differences)


def _std_of_differences(accuracies: pd.Series) -> float:
    if len(accuracies) < _LEAST_EVALUATIONS:
        return math.nan
    return float(np.std(np.diff(accuracies), ddof=1))


def _devices(fanouts: object) -> float:
    value = comparable(fanouts)
    return math.prod(value) if isinstance(value, tuple) else math.nan


def _zones(fanouts: object) -> float:
    value = comparable(fanouts)
    return math.prod(value[:-1]) if isinstance(value, tuple) else math.nan
