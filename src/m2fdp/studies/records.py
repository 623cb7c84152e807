"""MLflow's records of runs as the frames that reports are made from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import mlflow
import pandas as pd
from mlflow.entities import Run

from m2fdp.config import INCIDENTAL
from m2fdp.errors import InputError
from m2fdp.reporting.figures import HISTORY_COLUMNS
from m2fdp.reporting.style import ARM
from m2fdp.reporting.tables import RUN_COLUMNS


def load_runs(run_ids: Iterable[str], varied: Sequence[str] = ()) -> pd.DataFrame:
    """The finished runs among `run_ids` that have an accuracy, one row each.

    Of runs of one configuration only the latest counts.

    Args:
        run_ids: MLflow's ids; `mlflow.search_runs` finds them.
        varied: what tells the runs apart: `arm`, the name that a study gives a group of
            parameters (a tag), and dotted keys of parameters.

    Returns:
        `m2fdp.reporting.tables.RUN_COLUMNS` and one column for each of `varied` but algorithm
        and seed: parameters as numbers where all values are, NaN where a run has none. The
        index, `run_id`, is in the order of `run_ids`.

    Raises:
        InputError: no such run, or runs of one algorithm that differ in more than `varied`.
    """
    swept = _swept(varied)
    runs = _comparable(run_ids, swept)
    metrics = ("accuracy", "loss", "epsilon_nominal", "epsilon_verified", "energy_j", "delay_s")
    rows = [
        {
            "algorithm": run.data.tags["algorithm"],
            "seed": int(run.data.tags["seed"]),
            "role": run.data.tags["role"],
            "privacy": run.data.tags["privacy"],
            **{name: run.data.metrics.get(name) for name in metrics},
            **{key: _value(run, key) for key in swept},
        }
        for run in runs
    ]
    index = pd.Index([run.info.run_id for run in runs], name="run_id")
    table = pd.DataFrame(rows, index=index, columns=[*RUN_COLUMNS, *swept])
    table = table.astype(dict.fromkeys(metrics, float))
    for key in swept:
        if key != ARM:
            table[key] = _numbers(table[key])
    return table


def load_history(run_ids: Iterable[str], varied: Sequence[str] = ()) -> pd.DataFrame:
    """The evaluated rounds of the runs that `load_runs` returns, one row a run and round.

    Returns:
        `m2fdp.reporting.figures.HISTORY_COLUMNS` and one column for each of `varied` but
        algorithm and seed.

    Raises:
        InputError: as `load_runs`.
    """
    client = mlflow.MlflowClient()
    swept = _swept(varied)
    tables = []
    for run_id, run in load_runs(run_ids, varied).iterrows():
        metrics = {
            name: {
                metric.step: metric.value
                for metric in sorted(
                    client.get_metric_history(run_id, name), key=lambda m: (m.step, m.timestamp)
                )
            }
            for name in ("accuracy", "loss", "energy_j", "delay_s", "epsilon")
        }
        rounds = pd.DataFrame(metrics, dtype=float).rename_axis("round").sort_index()
        own = run[["algorithm", "seed", *swept]].to_dict()
        tables.append(rounds.reset_index().assign(**own))
    return pd.concat(tables, ignore_index=True)[[*HISTORY_COLUMNS, *swept]]


def _swept(varied: Sequence[str]) -> list[str]:
    """What is a column only where it is varied."""
    return [key for key in varied if key not in ("algorithm", "seed")]


def _value(run: Run, key: str) -> str | None:
    """The text of a run's parameter, or its arm."""
    return run.data.tags.get(ARM) if key == ARM else run.data.params.get(key)


def _comparable(run_ids: Iterable[str], swept: Sequence[str]) -> list[Run]:
    """The latest finished run of each configuration."""
    client = mlflow.MlflowClient()
    latest: dict[Hashable, Run] = {}
    for run in map(client.get_run, dict.fromkeys(run_ids)):
        if run.info.status != "FINISHED" or "accuracy" not in run.data.metrics:
            continue
        configuration = frozenset(
            (key, value) for key, value in run.data.params.items() if key not in INCIDENTAL
        )
        other = latest.get(configuration)
        if other is None or other.info.start_time < run.info.start_time:
            latest[configuration] = run
    if not latest:
        raise InputError(
            "runs", "(none)", "no finished run is among them; `kedro study quickstart` makes some"
        )
    _check_alike(list(latest.values()), swept)
    return list(latest.values())


def _check_alike(runs: list[Run], swept: Sequence[str]) -> None:
    """Seeds of one line must share everything else, or their mean would mean nothing."""
    groups: dict[Hashable, list[Run]] = defaultdict(list)
    for run in runs:
        values = (_value(run, key) for key in swept)
        groups[(run.data.tags["algorithm"], *values)].append(run)
    for (algorithm, *_), members in groups.items():
        for key in sorted({key for run in members for key in run.data.params}):
            values = sorted({str(run.data.params.get(key)) for run in members})
            if len(values) > 1 and key not in INCIDENTAL | {"seed"}:
                raise InputError(
                    key,
                    values,
                    f"runs of {algorithm} differ in it; compare by it (`varied`), or search "
                    "for fewer runs",
                )


def _numbers(values: pd.Series) -> pd.Series:
    """Parameters, which MLflow keeps as texts, as numbers where all of them are."""
    given = values.where(values != "None")
    try:
        return pd.to_numeric(given)
    except ValueError:
        return given
