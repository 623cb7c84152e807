"""MLflow's runs as the frames that reports are made from."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache

import mlflow
import pandas as pd
from mlflow.entities import Run

from m2fdp.claims.frames import HISTORY_COLUMNS, RUN_COLUMNS, TAGS
from m2fdp.claims.measures import DECISIONS, OF_METRICS
from m2fdp.claims.measuring import to_target
from m2fdp.core.blocks import NO_RESULT
from m2fdp.core.config import Config, flatten, marked
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import promised_epsilon
from m2fdp.pipelines.mlflow_internals import is_database, metric_values
from m2fdp.pipelines.recording import AS_PROMISED_TAGS, ATTACK_INFINITE_TAG, INFINITE_TAG
from m2fdp.studies.grid import Cell


def load_runs(
    run_ids: Iterable[str], varied: Sequence[str] = (), by_seed: Collection[str] = ()
) -> pd.DataFrame:
    """The finished runs among `run_ids` that have an accuracy, or were attacked, one row each.

    Of runs of one configuration only the latest counts.

    Args:
        run_ids: MLflow's ids; `mlflow.search_runs` finds them.
        varied: what tells the runs apart: `arm` and `version`, the names that a study gives
            groups of parameters (tags), and dotted keys of parameters.
        by_seed: dotted keys that each seed's run has a value of its own of.

    Returns:
        `m2fdp.claims.frames.RUN_COLUMNS` and one column for each of `varied` but algorithm
        and seed: parameters as numbers where all values are, NaN where a run has none. The
        index, `run_id`, is in the order of `run_ids`.

    Raises:
        InputError: no such run, or runs of one algorithm that differ in more than `varied`.
    """
    swept = _swept(varied)
    runs = _comparable(run_ids, swept, by_seed)
    metrics = ("accuracy", "loss", "epsilon_nominal", "epsilon_verified", "energy_j", "delay_s")
    rows = [
        {
            "algorithm": run.data.tags["algorithm"],
            "seed": int(run.data.tags["seed"]),
            "role": run.data.tags["role"],
            "privacy": run.data.tags["privacy"],
            **{name: run.data.metrics.get(name) for name in metrics},
            "epsilon_verified": promised_epsilon(run.data.metrics),  # `privacy` says which it is
            **{key: _value(run, key) for key in swept},
        }
        for run in runs
    ]
    index = pd.Index([run.info.run_id for run in runs], name="run_id")
    table = pd.DataFrame(rows, index=index, columns=[*RUN_COLUMNS, *swept])
    return _with_numbers(table.astype(dict.fromkeys(metrics, float)), swept)


def differing(run_ids: Iterable[str]) -> tuple[str, ...]:
    """What finished runs of one algorithm differ in besides their seed: `varied` for runs that are
    of no study, of which nobody has said it.

    Raises:
        InputError: none of the runs is finished.
    """
    by_algorithm: dict[str, list[dict[str, str]]] = defaultdict(list)
    for run in _finished(run_ids):
        by_algorithm[run.data.tags["algorithm"]].append(_params(run))
    varied = {
        key
        for params in by_algorithm.values()
        for key in set().union(*params) - {*marked(NO_RESULT), "seed"}
        if len({str(each.get(key)) for each in params}) > 1
    }
    return tuple(sorted(varied))


def load_history(
    run_ids: Iterable[str], varied: Sequence[str] = (), by_seed: Collection[str] = ()
) -> pd.DataFrame:
    """The evaluated rounds of the runs that `load_runs` returns, one row a run and round.

    Returns:
        `m2fdp.claims.frames.HISTORY_COLUMNS` and one column for each of `varied` but
        algorithm and seed.

    Raises:
        InputError: as `load_runs`.
    """
    swept = _swept(varied)
    runs = load_runs(run_ids, varied, by_seed)[["algorithm", "seed", *swept]]
    rounds = _by_round(list(runs.index), ("accuracy", "loss", "energy_j", "delay_s", "epsilon"))
    # In the order of the runs.
    history = runs.reset_index().merge(rounds, on="run_id")
    return history[[*HISTORY_COLUMNS, *swept]]


def load_costs(run_ids: Sequence[str], target_accuracy: float) -> pd.DataFrame:
    """What runs, of whatever configurations, took to get to an accuracy; see
    `m2fdp.claims.measures.to_target`."""
    rounds = _by_round(list(run_ids), ("accuracy", "energy_j", "delay_s"))
    return to_target(rounds, target_accuracy)


def load_decisions(run_ids: Iterable[str]) -> pd.DataFrame:
    """The adaptive controller's decisions, one row a run and round; none of runs without it.

    Apart from the history because they are of every round, evaluated or not.

    Returns:
        run_id, round and `m2fdp.claims.measures.DECISIONS`: K, the local steps, and
        s_trusted and s_untrusted, the devices that take part below each trusted and each
        untrusted node of layer 1.
    """
    metrics = {f"control/{name}": name for name in DECISIONS}
    return _by_round(list(dict.fromkeys(run_ids)), tuple(metrics)).rename(columns=metrics)


def load_metrics(run_ids: Iterable[str]) -> pd.DataFrame:
    """What observers of H's zones learn and what attacks take, one row a run, by its id.

    Returns:
        The measures of `m2fdp.claims.measures.OF_METRICS`: infinite ones, and NaN where a run has
        no such observer, no zones, or was not attacked.
    """
    client = mlflow.MlflowClient()
    rows = {run_id: _of_metrics(client.get_run(run_id)) for run_id in dict.fromkeys(run_ids)}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(OF_METRICS)).astype(float)


def _of_metrics(run: Run) -> list[float]:
    tags = (INFINITE_TAG, ATTACK_INFINITE_TAG)
    infinite = [name for tag in tags for name in run.data.tags.get(tag, "").split()]
    values = run.data.metrics | dict.fromkeys(infinite, math.inf)
    for tag in AS_PROMISED_TAGS.values():
        values |= dict.fromkeys(run.data.tags.get(tag, "").split(), promised_epsilon(values))
    return [
        max((v for name, v in values.items() if fnmatchcase(name, metric)), default=math.nan)
        for metric in OF_METRICS.values()
    ]


def expected_runs(cells: Sequence[Cell], varied: Sequence[str]) -> pd.DataFrame:
    """The frame that `load_runs` would return if all cells were finished.

    Its index is the cells' names; what only runs can tell is 1.
    """
    swept = _swept(varied)
    rows = []
    for cell in cells:
        plain = flatten(cell.config.model_dump(mode="json"))
        params = {key: str(value) for key, value in plain.items()}
        named = {"algorithm": cell.config.algorithm, "seed": cell.config.seed}
        rows.append(named | {key: (cell.tags if key in TAGS else params).get(key) for key in swept})
    table = pd.DataFrame(rows, index=pd.Index([cell.name for cell in cells], name="run_id"))
    table = _with_numbers(table, swept)
    stand_ins = {name: 1.0 for name in RUN_COLUMNS if name not in ("algorithm", "seed")}
    table = table.assign(**stand_ins | {"role": "method", "privacy": "none"})
    return table[[*RUN_COLUMNS, *swept]]


def _by_round(run_ids: list[str], names: Sequence[str]) -> pd.DataFrame:
    """The last value of each metric by run and round; NaN where a round has none."""
    store = mlflow.get_tracking_uri()
    # The client makes a query a run and metric, and takes several times longer.
    rows = (
        metric_values(store, run_ids, names)
        if is_database(store)
        else _values_by_client(run_ids, names)
    )
    columns = ["run_id", "name", "round", "time", "value"]
    values = pd.DataFrame(rows, columns=columns).sort_values(["run_id", "round", "time"])
    last = values.drop_duplicates(["run_id", "round", "name"], keep="last")
    rounds = last.pivot(index=["run_id", "round"], columns="name", values="value")
    return rounds.reindex(columns=list(names)).astype(float).rename_axis(columns=None).reset_index()


def _values_by_client(run_ids: Sequence[str], names: Sequence[str]) -> list[tuple]:
    """From an MLflow server, which has no other way."""
    client = mlflow.MlflowClient()
    return [
        (run_id, name, metric.step, metric.timestamp, metric.value)
        for run_id in run_ids
        for name in names
        for metric in client.get_metric_history(run_id, name)
        if not math.isnan(metric.value)
    ]


def _swept(varied: Sequence[str]) -> list[str]:
    """What is a column only where it is varied."""
    return [key for key in varied if key not in ("algorithm", "seed")]


def _value(run: Run, key: str) -> str | None:
    """The text of a run's parameter, or its arm or version."""
    return (run.data.tags if key in TAGS else _params(run)).get(key)


def _params(run: Run) -> dict[str, str]:
    """A run's parameters. It has had the defaults of what it has not read, and of keys that are
    younger than it."""
    return _defaults() | run.data.params


@cache
def _defaults() -> dict[str, str]:
    """By key, as MLflow has them; not of the one mapping, of which every run tells its entries."""
    every = flatten(
        Config().model_dump(exclude={"resume": True, "training": {"local_aggregation"}})
    )
    return {key: str(value) for key, value in every.items()}


def _comparable(
    run_ids: Iterable[str], swept: Sequence[str], by_seed: Collection[str]
) -> list[Run]:
    """The latest finished run of each configuration."""
    latest: dict[Hashable, Run] = {}
    for run in _finished(run_ids):
        # Two arms may come to the same parameters, and are lines of their own then.
        named = {key: run.data.tags.get(key, "") for key in TAGS if key in swept}
        # A user's own split is no part of the parameters.
        named["split"] = run.data.tags.get("split_sha256", "")
        configuration = frozenset(
            item for item in (_params(run) | named).items() if item[0] not in marked(NO_RESULT)
        )
        other = latest.get(configuration)
        if other is None or other.info.start_time < run.info.start_time:
            latest[configuration] = run
    _check_alike(list(latest.values()), swept, by_seed)
    return list(latest.values())


def _finished(run_ids: Iterable[str]) -> list[Run]:
    """The finished runs that have an accuracy, or were attacked."""
    runs = map(mlflow.MlflowClient().get_run, dict.fromkeys(run_ids))
    finished = [r for r in runs if r.info.status == "FINISHED" and _found_something(r)]
    if not finished:
        raise InputError(
            "runs", "(none)", "no finished run is among them; `kedro study quickstart` makes some"
        )
    return finished


def _found_something(run: Run) -> bool:
    return "accuracy" in run.data.metrics or ATTACK_INFINITE_TAG in run.data.tags


def _check_alike(runs: list[Run], swept: Sequence[str], by_seed: Collection[str]) -> None:
    """Seeds of one line must share everything else, or their mean would mean nothing."""
    groups: dict[tuple[str | None, ...], list[Run]] = defaultdict(list)
    for run in runs:
        line = (_value(run, key) for key in swept)
        groups[(run.data.tags["algorithm"], *line)].append(run)
    for (algorithm, *_), members in groups.items():
        params = [_params(run) for run in members]
        for key in sorted(set().union(*params)):
            values = sorted({str(each.get(key)) for each in params})
            if len(values) > 1 and key not in {*marked(NO_RESULT), "seed", *by_seed}:
                raise InputError(
                    key,
                    values,
                    f"runs of {algorithm} differ in it; compare by it (`varied`), or search "
                    "for fewer runs",
                )


def _with_numbers(table: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Columns of parameters, which MLflow keeps as texts, as numbers where all of one are."""
    for key in swept:
        if key not in TAGS:
            table[key] = table[key].where(table[key] != "None")
            with suppress(ValueError):
                table[key] = pd.to_numeric(table[key])
    return table
