"""`kedro results rerun`: recorded runs made again, at the schedules that were chosen then."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import mlflow
from mlflow.entities import RunData
from rich.console import Console
from rich.text import Text

from m2fdp.core.errors import InputError, among
from m2fdp.core.formatting import counted, promised_epsilon, upper_bound
from m2fdp.pipelines.tracking import PROCESS_TAG, close_stale_runs, process_tag
from m2fdp.reporting.tables import new_table, show
from m2fdp.studies.command import load_setting
from m2fdp.studies.grid import SEED, Cell, Point, Setting, build_cell
from m2fdp.studies.launcher import Launcher
from m2fdp.studies.order import ONLY, Order, part_of, read_study
from tools.records import record_files, recorded

# Another type of machine may put a few records of ten thousand elsewhere; seeds differ by more.
_NEAR = 0.002
_SAME_EPSILON = 1e-6  # of it: calibration ends by bisection
_DIGITS = 8  # of a hash
SAME, NEAR, FAILED = "same", "near", "FAILED"


def check_recorded(
    project: Path, order: Order, only: Sequence[str], seeds: int | None
) -> tuple[Point, ...]:
    """The points of a study's record that are to be made again.

    Args:
        only: the part that is meant, as `part_of` reads it.
        seeds: how many seeds at most, the first ones; None = all.

    Raises:
        InputError: no such record, or nothing of it is meant.
    """
    study, _ = read_study(project, order)
    files = record_files(project, order.identity)
    if not files.exists:
        known = among(order.identity, recorded(project))
        valid = f"has no record in docs/results/runs; there are {known}"
        raise InputError("study", order.identity, valid)
    runs = files.read().runs
    chosen = [point for point in part_of(study, only) if point.name in runs.index]
    if not chosen:
        some = ", ".join(runs.index[:3])
        raise InputError(ONLY, " ".join(only) or "(all)", f"the record has runs as {some}")
    first = list(dict.fromkeys(point.values.get(SEED) for point in chosen))[:seeds]
    return tuple(point for point in chosen if point.values.get(SEED) in first)


def rerun(project: Path, order: Order, chosen: Sequence[Point], workers: int | None) -> bool:
    """Run recorded cells by this code, and print what was and what is.

    Args:
        order: the study's, with the parameters that find its data here.
        chosen: points that the record has.
        workers: how many processes at most; None = one a core.

    Returns:
        Whether every run has its recorded accuracy, epsilon and split.
    """
    runs = record_files(project, order.identity).read().runs
    record: dict[Any, dict[Any, Any]] = runs.to_dict("index")
    setting = replace(load_setting(project, order), name=f"{order.identity}-rerun")
    cells = [_recorded_cell(setting, point, record[point.name]) for point in chosen]
    close_stale_runs()
    parent = mlflow.start_run(
        run_name=setting.name,
        tags={"study": setting.name, "role": "rerun", PROCESS_TAG: process_tag()},
    )
    env = order.env or setting.study.env
    launcher = Launcher(project, env, setting.name, parent, workers, resume=False)
    run_ids = launcher.run("recorded runs", cells)
    client = mlflow.MlflowClient()
    rows = []
    for cell in cells:
        now = client.get_run(run_ids[cell.hash]).data if cell.hash in run_ids else None
        rows.append(compared(cell, record[cell.name], now))
    _print(order.identity, rows)
    return all(row["now"] in (SAME, NEAR) for row in rows)


def compared(cell: Cell, was: Mapping[str, Any], now: RunData | None) -> dict[str, str]:
    """A row on a recorded run and what has come of it, as texts; `now` is what it comes to.

    Args:
        cell: what was run again.
        was: the record's row.
        now: what MLflow has of the new run; None = it has failed.
    """
    before, promised, split = float(was["accuracy"]), float(was["epsilon_verified"]), was["split"]
    row = {"run": cell.name, "accuracy": f"{before:.4f}", "ε": _bound(promised)}
    row |= {"accuracy now": "–", "ε now": "–", "split now": "–"}
    if now is None:
        return row | {"now": FAILED}
    accuracy = now.metrics.get("accuracy", math.nan)
    epsilon, new_split = promised_epsilon(now.metrics), now.tags.get("split_sha256", "")
    row |= {"accuracy now": f"{accuracy:.4f}", "ε now": _bound(epsilon)}
    row |= {"split now": new_split[:_DIGITS]}
    off = _off(accuracy, before)
    others = {
        "configuration": not _is_as_recorded(cell, was),
        "split": new_split != split,
        "ε": _off(epsilon, promised)
        > (_SAME_EPSILON * promised if math.isfinite(promised) else 0.0),
        "accuracy": off > _NEAR,
    }
    different = [name for name, differs in others.items() if differs]
    return row | {"now": f"OTHER {', '.join(different)}" if different else NEAR if off else SAME}


def _off(one: float, other: float) -> float:
    """How far numbers are apart; nothing where neither is there, nor where both are infinite."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    return math.inf if math.isnan(one) or math.isnan(other) else abs(one - other)


def _bound(epsilon: float) -> str:
    return "none" if math.isnan(epsilon) else upper_bound(epsilon)


def _print(identity: str, rows: Sequence[Mapping[str, str]]) -> None:
    """The table in the terminal, and how many runs came out as they were."""
    result = new_table(f"{identity}: what was, and what is")
    for name in rows[0]:
        justify: Literal["left", "right"] = "left" if name in ("run", "now") else "right"
        width = 0 if name == "run" else max(len(row[name]) for row in rows)
        result.add_column(name, justify=justify, min_width=width, overflow="fold")
    for row in rows:
        result.add_row(*map(Text, row.values()))
    console = Console(highlight=False)
    show(result, console)
    same = sum(row["now"] in (SAME, NEAR) for row in rows)
    console.print(f"As recorded: {same} of {counted(len(rows), 'run')}.")


def _recorded_cell(setting: Setting, point: Point, run: Mapping[str, Any]) -> Cell:
    return build_cell(setting, point.name, point, json.loads(run["schedule"] or "{}"))


def _is_as_recorded(cell: Cell, run: Mapping[str, Any]) -> bool:
    """Whether the configuration is that of the record; one of two equal cells has its name in the
    hash."""
    return run["configuration"] in (cell.hash, replace(cell, twin=cell.name).hash)
