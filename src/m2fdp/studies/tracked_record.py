"""The record of a study whose runs are in MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import mlflow
import pandas as pd
from mlflow.entities import Run

from m2fdp.claims.frames import ARM
from m2fdp.claims.layout import LOSS
from m2fdp.claims.measuring import measure_runs
from m2fdp.core.metrics import OWN
from m2fdp.studies.grid import keys_by_seed, varied_keys
from m2fdp.studies.record import CHANGED, Record, curves_of, measures_of
from m2fdp.studies.report import one_run_an_arm
from m2fdp.studies.study import Study
from m2fdp.studies.tracked_runs import load_decisions, load_history, load_metrics, load_runs


def tracked_record(
    study: Study,
    names: Mapping[str, str],
    schedules: Mapping[str, Mapping[str, Any]] | None = None,
    search: pd.DataFrame | None = None,
    procedures: pd.DataFrame | None = None,
) -> Record:
    """What the finished runs of a study have found.

    Args:
        study: whose arms, versions and varied keys the runs have.
        names: what the cells are called, by MLflow's ids of their runs; runs of a search are none
            of the study's own.
        schedules: those that searches have chosen, by the cells' names.
        search: rows of `m2fdp.studies.search.search_table`; None = there was no search.
        procedures: rows of `m2fdp.studies.whole.whole_table`, likewise.

    Raises:
        InputError: as `load_runs`.
    """
    ids, varied, by_seed = list(names), varied_keys(study), keys_by_seed(study)
    runs = load_runs(ids, varied, by_seed)
    history = load_history(ids, varied, by_seed)
    measured = measure_runs(
        runs, history, load_decisions(ids), study.target_accuracy, load_metrics(ids)
    )
    kept = [*measures_of(study), *(name for name in OWN if measured[name].notna().any())]
    measured = measured[[name for name in measured if name in runs or name in kept]]
    client = mlflow.MlflowClient()
    origins = {
        run_id: _origin(client.get_run(run_id), (schedules or {}).get(names[run_id], {}))
        for run_id in measured.index
    }
    of_runs = pd.DataFrame.from_dict(origins, orient="index")
    board = {}
    if study.board is not None:
        board = {
            str(row.get(ARM, "")): mlflow.artifacts.load_dict(f"runs:/{run_id}/attack.json")
            for run_id, row in one_run_an_arm(study.board, runs).iterrows()
        }
    return Record(
        measured.join(of_runs).rename(index=names),
        _curves(history.assign(run_id=history["run_id"].map(names)), curves_of(study)),
        pd.DataFrame() if search is None else search,
        pd.DataFrame() if procedures is None else procedures,
        board,
    )


def _curves(history: pd.DataFrame, shown: set[str]) -> pd.DataFrame:
    """The rounds, where anything of them is shown, without a loss and own metrics that are not."""
    if not shown:
        return pd.DataFrame()
    return history.drop(columns=[name for name in (LOSS, *OWN) if name not in shown])


def _origin(run: Run, schedule: Mapping[str, Any]) -> dict[str, Any]:
    """The columns `m2fdp.studies.record.ORIGIN` of a run."""
    tags, info = run.data.tags, run.info
    changed = CHANGED if tags.get("git_dirty") == "true" else ""
    return {
        "seconds": (info.end_time - info.start_time) / 1000,
        "commit": tags.get("git_commit", "") + changed,
        "configuration": tags.get("cell_hash", ""),
        "split": tags.get("split_sha256", ""),
        "schedule": json.dumps(schedule) if schedule else "",
    }
