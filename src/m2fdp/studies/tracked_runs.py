"""A study's runs as tables: what its figures, tables and verdicts are made from."""

import json
import math
from ast import literal_eval
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any

import mlflow
import pandas as pd
from mlflow.entities import Run

from m2fdp.claims.declared import OVER_A_RUN, TrendClaim
from m2fdp.claims.frames import ARM, HISTORY_COLUMNS, RUN_COLUMNS, TAGS, select_runs, swept_columns
from m2fdp.claims.measures import MEASURES, tracked
from m2fdp.claims.measuring import measure_runs, to_target
from m2fdp.core import metrics
from m2fdp.core.blocks import NO_RESULT
from m2fdp.core.config import Config, flatten, marked
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import promised_epsilon
from m2fdp.core.metrics import ACCURACY, DELAY, ENERGY, LOSS, METRICS, OWN, names_of
from m2fdp.own.metrics import own_metrics
from m2fdp.pipelines.mlflow_internals import is_database, metric_values
from m2fdp.pipelines.recording import AS_PROMISED_TAGS, ATTACK_INFINITE_TAG, INFINITE_TAG
from m2fdp.studies.grid import Cell, keys_by_seed, varied_keys
from m2fdp.studies.study import Board, Study

# Where a run comes from: how long it took (s), the code, the SHA-256 of its configuration and of
# its split, and the schedule that a search has chosen, dotted parameters as JSON.
ORIGIN = ("seconds", "commit", "configuration", "split", "schedule")
CHANGED = "+changes"  # what follows a commit whose files had changes


@dataclass(frozen=True)
class Record:
    """What the finished runs of a study have found."""

    # One row a run, of `measure_runs`, with the measures that the study shows or judges, and
    # `ORIGIN`; its index is the cell's name.
    runs: pd.DataFrame
    rounds: pd.DataFrame  # one row a run and evaluated round, as figures show it; or none
    search: pd.DataFrame = field(default_factory=pd.DataFrame)  # of `search_table`
    procedures: pd.DataFrame = field(default_factory=pd.DataFrame)  # of `whole_table`
    board: Mapping[str, Any] = field(default_factory=dict)  # what attacks reconstruct, by arm

    @property
    def measured(self) -> pd.DataFrame:
        """The runs, without where they come from."""
        return self.runs.drop(columns=list(ORIGIN))

    @property
    def compared(self) -> pd.DataFrame:
        """Of these what every run has, the users' own metrics, and what tells runs apart."""
        shown = (*RUN_COLUMNS, *OWN)
        return self.measured[[n for n in self.measured if n in shown or n not in MEASURES]]


def measures_of(study: Study) -> list[str]:
    """The measures that a study shows, judges or is laid out by, in their order."""
    names = {*study.table, *(claim.measure for claim in study.claims)}
    names |= {claim.trend for claim in study.claims if isinstance(claim, TrendClaim)}
    for panel in () if study.figure is None else study.figure.panels:
        names |= {panel.x, panel.y, panel.lines, *panel.where}
    return [name for name in MEASURES if name in names and name not in RUN_COLUMNS]


def curves_of(study: Study, history: pd.DataFrame) -> set[str]:
    """What the study's figure shows over a run, of `m2fdp.claims.declared.curves`."""
    if study.figure is None:
        return {ACCURACY.name if history.empty else metrics.leading(history.iloc[-1]).name}
    return {panel.y for panel in study.figure.panels if panel.x in OVER_A_RUN}


def one_run_an_arm(board: Board, runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that a board shows."""
    chosen = select_runs(runs, board.where)
    twice = chosen[chosen[ARM].duplicated()] if ARM in chosen else chosen.iloc[1:]
    if len(twice):
        name = str(twice[ARM].iloc[0]) if ARM in twice else "(all)"
        raise InputError("board.where", name, "has several runs; name more columns")
    return chosen


def tracked_record(
    study: Study,
    names: Mapping[str, str],
    schedules: Mapping[str, Mapping[str, Any]] | None = None,
    **tables: pd.DataFrame,
) -> Record:
    """What the finished runs of a study have found, but those of its searches.

    Args:
        names: what the cells are called, by MLflow's ids of their runs.
        schedules: that were chosen, by the cells' names.
        tables: `search` and `procedures`, where schedules were searched.
    """
    ids = list(names)
    runs = load_runs(ids, varied_keys(study), keys_by_seed(study))
    history, known = load_history(runs), load_metrics(ids)
    measured = measure_runs(runs, history, load_decisions(ids), study.target_accuracy, known)
    shown = {*measures_of(study), *(name for name in OWN if measured[name].notna().any())}
    kept = [name for name in measured if name in runs or name in shown]
    origins = {
        run_id: _origin(mlflow.get_run(run_id), (schedules or {}).get(names[run_id], {}))
        for run_id in measured.index
    }
    board = {}
    if study.board is not None:
        board = {
            str(row.get(ARM, "")): mlflow.artifacts.load_dict(f"runs:/{run_id}/attack.json")
            for run_id, row in one_run_an_arm(study.board, runs).iterrows()
        }
    curves = curves_of(study, history)
    rounds = history.assign(run_id=history["run_id"].map(names))
    unseen = [name for name in (LOSS.name, *OWN) if name not in curves]
    rounds = rounds.drop(columns=unseen) if curves else pd.DataFrame()
    runs = measured[kept].join(pd.DataFrame.from_dict(origins, orient="index"))
    return Record(runs.rename(index=names), rounds, board=board, **tables)


def _origin(run: Run, schedule: Mapping[str, Any]) -> dict[str, Any]:
    """The columns `ORIGIN` of a run."""
    tags, info = run.data.tags, run.info
    changed = CHANGED if tags.get("git_dirty") == "true" else ""
    return {
        "seconds": (info.end_time - info.start_time) / 1000,
        "commit": tags.get("git_commit", "") + changed,
        "configuration": tags.get("cell_hash", ""),
        "split": tags.get("split_sha256", ""),
        "schedule": json.dumps(schedule) if schedule else "",
    }


def load_runs(
    run_ids: Iterable[str], varied: Sequence[str] = (), by_seed: Collection[str] = ()
) -> pd.DataFrame:
    """The finished runs that have an accuracy, or were attacked, one row each; of runs of one
    configuration the latest.

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
    swept = swept_columns(varied, ())
    runs = _comparable(run_ids, swept, by_seed)
    numbers = names_of(metrics.COMPARED)
    rows = [
        {
            "algorithm": run.data.tags["algorithm"],
            "seed": int(run.data.tags["seed"]),
            "role": run.data.tags["role"],
            "privacy": run.data.tags["privacy"],
            **{name: run.data.metrics.get(name) for name in numbers},
            # `privacy` says which it is.
            metrics.EPSILON_VERIFIED.name: promised_epsilon(run.data.metrics),
            **{key: _value(run, key) for key in swept},
        }
        for run in runs
    ]
    index = pd.Index([run.info.run_id for run in runs], name="run_id")
    table = pd.DataFrame(rows, index=index, columns=[*RUN_COLUMNS, *swept])
    return _with_numbers(table.astype(dict.fromkeys(numbers, float)), swept)


def differing(run_ids: Iterable[str]) -> tuple[str, ...]:
    """What finished runs of one algorithm differ in besides their seed: `varied` for runs of no
    study."""
    by_algorithm: dict[str, list[Run]] = defaultdict(list)
    for run in _finished(run_ids):
        by_algorithm[run.data.tags["algorithm"]].append(run)
    return tuple(sorted({key for runs in by_algorithm.values() for key in _apart(runs)}))


def load_history(runs: pd.DataFrame) -> pd.DataFrame:
    """The evaluated rounds of rows of `load_runs`, in their order, one row a run and round:
    `m2fdp.claims.frames.HISTORY_COLUMNS`, the users' own metrics, and what tells runs apart."""
    swept = swept_columns(runs.columns, RUN_COLUMNS)
    rounds = _by_round(list(runs.index), (*names_of(metrics.EVALUATED), *OWN))
    history = runs[["algorithm", "seed", *swept]].reset_index().merge(rounds, on="run_id")
    return history[[*HISTORY_COLUMNS, *OWN, *swept]]


def load_costs(run_ids: Iterable[str], target_accuracy: float) -> pd.DataFrame:
    """What runs, of whatever configurations, took to get to an accuracy, by
    `m2fdp.claims.measuring.to_target`."""
    rounds = _by_round(list(run_ids), names_of((ACCURACY, ENERGY, DELAY)))
    return to_target(rounds, target_accuracy)


def load_decisions(run_ids: Iterable[str]) -> pd.DataFrame:
    """The adaptive controller's decisions, one row a run and round, evaluated or not; none of runs
    without it.

    Returns:
        run_id, round and the measures that are means of them: K, the local steps, and the devices
        that take part below each trusted and each untrusted node of layer 1.
    """
    measures = {metric: name for name, metric in tracked(of_rounds=True).items()}
    return _by_round(list(dict.fromkeys(run_ids)), tuple(measures)).rename(columns=measures)


def load_metrics(run_ids: Iterable[str]) -> pd.DataFrame:
    """The measures of `m2fdp.claims.measures.tracked`, one row a run, by its id: epsilons of H's
    observers and takings of attacks. Infinite ones stay; NaN: the run has no such metric."""
    client, wanted = mlflow.MlflowClient(), tracked(of_rounds=False)
    rows = {}
    for run_id in dict.fromkeys(run_ids):
        data = client.get_run(run_id).data
        values = dict(data.metrics)
        for tag in (INFINITE_TAG, ATTACK_INFINITE_TAG):
            values |= dict.fromkeys(data.tags.get(tag, "").split(), math.inf)
        for tag in AS_PROMISED_TAGS.values():
            values |= dict.fromkeys(data.tags.get(tag, "").split(), promised_epsilon(values))
        rows[run_id] = [
            max((v for name, v in values.items() if fnmatchcase(name, metric)), default=math.nan)
            for metric in wanted.values()
        ]
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*wanted]).astype(float)


def expected_runs(cells: Sequence[Cell], varied: Sequence[str]) -> pd.DataFrame:
    """The frame that `load_runs` would return if all cells were finished, by their names; what only
    runs can tell is 1."""
    swept = swept_columns(varied, ())
    stand_ins = dict.fromkeys(RUN_COLUMNS, 1.0) | {"role": "method", "privacy": "none"}
    rows = []
    for cell in cells:
        plain = flatten(cell.config.model_dump(mode="json"))
        params = {key: str(value) for key, value in plain.items()}
        named = {"algorithm": cell.config.algorithm, "seed": cell.config.seed}
        varying = {key: (cell.tags if key in TAGS else params).get(key) for key in swept}
        rows.append(stand_ins | named | varying)
    table = pd.DataFrame(rows, index=pd.Index([cell.name for cell in cells], name="run_id"))
    return _with_numbers(table, swept)[[*RUN_COLUMNS, *swept]]


def _by_round(run_ids: list[str], names: Sequence[str]) -> pd.DataFrame:
    """The last value of each metric by run and round; NaN where a round has none."""
    store = mlflow.get_tracking_uri()
    # The client makes a query a run and metric, and takes several times longer.
    values_of = partial(metric_values, store) if is_database(store) else _values_by_client
    rows = values_of(run_ids, names)
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
    every = Config().model_dump(exclude={"resume": True, "training": {"local_aggregation"}})
    return {key: str(value) for key, value in flatten(every).items()}


def _comparable(
    run_ids: Iterable[str], swept: Sequence[str], by_seed: Collection[str]
) -> list[Run]:
    """The latest finished run of each configuration. Seeds of one line must share everything else,
    or their mean would mean nothing."""
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
    groups: dict[tuple[str | None, ...], list[Run]] = defaultdict(list)
    for run in latest.values():
        groups[(run.data.tags["algorithm"], *(_value(run, key) for key in swept))].append(run)
    for (algorithm, *_), members in groups.items():
        for key, values in _apart(members).items():
            if key not in by_seed:
                remedy = "compare by it (`varied`), or search for fewer runs"
                raise InputError(key, values, f"runs of {algorithm} differ in it; {remedy}")
    return list(latest.values())


def _finished(run_ids: Iterable[str]) -> list[Run]:
    """The finished runs that were evaluated, or attacked."""
    runs = map(mlflow.MlflowClient().get_run, dict.fromkeys(run_ids))
    finished = [
        run
        for run in runs
        if run.info.status == "FINISHED"
        and (LOSS.name in run.data.metrics or ATTACK_INFINITE_TAG in run.data.tags)
    ]
    for run in finished:  # so that tables know how their own metrics are written
        asked = literal_eval(run.data.params.get(metrics.KEY, "[]"))
        own_metrics(asked or [name for name in METRICS if name in run.data.metrics])
    if not finished:
        remedy = "no finished run is among them; `kedro study quickstart` makes some"
        raise InputError("runs", "(none)", remedy)
    return finished


def _apart(runs: Sequence[Run]) -> dict[str, list[str]]:
    """What runs differ in besides their seed and what no result depends on, and its values."""
    params = [_params(run) for run in runs]
    keys = sorted(set().union(*params) - {*marked(NO_RESULT), "seed"})
    values = {key: sorted({str(each.get(key)) for each in params}) for key in keys}
    return {key: several for key, several in values.items() if len(several) > 1}


def _with_numbers(table: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Columns of parameters, which MLflow keeps as texts, as numbers where all of one are."""
    for key in swept:
        if key not in TAGS:
            table[key] = table[key].where(table[key] != "None")
            with suppress(ValueError):
                table[key] = pd.to_numeric(table[key])
    return table
