"""How a study chooses schedules: by accuracy on records that are held out of the training data, or
by what it takes to get to a target there.

The choice looks at data: at the study's own, which no epsilon counts; at others'; or at the study's
own behind noise, so that all together keeps epsilon.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from m2fdp.core.config import DatasetConfig
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.own_code import is_own
from m2fdp.selection.procedures import if_gaussian
from m2fdp.studies.grid import (
    SEED,
    Cell,
    Point,
    Schedules,
    Setting,
    build_cell,
    chosen_for,
    followed,
    place_of_choice,
    schedules_to_try,
    search_of,
)
from m2fdp.studies.study import Grid, Search


@dataclass(frozen=True)
class Tried:
    """What a candidate's run has shown on the held-out records.

    Attributes:
        accuracy: the final accuracy.
        cost: energy or delay to the target; NaN where it was not reached, or none is asked for.
    """

    accuracy: float = math.nan
    cost: float = math.nan


# By the hash of a cell.
Results = Mapping[str, Tried]


@dataclass(frozen=True)
class Candidate:
    """A schedule that an arm may take, and the runs that try it."""

    place: str  # of the choice, as `place_of_choice` names it
    point: Point  # where it is tried; its values hold no seed
    schedule: dict[str, Any]  # dotted parameters
    cells: tuple[Cell, ...]  # one a seed and a value of `search.over`
    others: str = ""  # what it was tried on, if on no record of those that the arm trains on
    counted: bool = False  # whether its runs and their scores are counted
    by: str = "accuracy"  # what it is chosen by
    target: float | None = None  # the accuracy that it is to reach, if it is chosen by a cost


def next_candidates(
    setting: Setting,
    chosen: Iterable[Point],
    schedules: Schedules,
    tried: Sequence[Candidate],
) -> tuple[Candidate, ...]:
    """The candidates of all choices that nothing was tried for yet and that wait for no other.

    Args:
        chosen: the points whose schedules are to be chosen, if they have any to choose.
        schedules: the choices made.
        tried: the candidates that have been run.

    Raises:
        InputError: a candidate's configuration is refused.
    """
    done = {candidate.place for candidate in tried}
    waiting: dict[str, Point] = {}
    every = (p for point in chosen for p in (followed(setting.study, point), point))
    for point in filter(None, every):
        place, of_point = place_of_choice(setting.study, point), search_of(setting.study, point)
        if place is not None and of_point is not None and place not in done:
            values = chosen_for(of_point[0], point)
            fixed = {key: value for key, value in of_point[0].at.items() if key in values}
            waiting.setdefault(place, replace(point, values=values | fixed))
    return tuple(
        candidate
        for place, point in waiting.items()
        for candidate in _candidates(setting, place, point, schedules)
    )


def choose(candidates: Sequence[Candidate], results: Results) -> dict[str, dict[str, Any]]:
    """The best schedule of each place; of equals the first.

    The best has the highest mean accuracy, or reaches the target with the most seeds, and of those
    at the least mean cost. A candidate that lacks a seed's run is out.
    """
    best: dict[str, tuple[tuple[float, float], dict[str, Any]]] = {}
    for candidate in candidates:
        accuracies = _of(candidate, results, "accuracy")
        if accuracies.isna().any():
            continue
        score = accuracies.mean(), 0.0
        if candidate.by != "accuracy":
            costs = _of(candidate, results, "cost")
            score = costs.count(), -costs.mean() if costs.count() else accuracies.mean()
        if candidate.place not in best or score > best[candidate.place][0]:
            best[candidate.place] = (score, candidate.schedule)
    return {place: schedule for place, (_, schedule) in best.items()}


def search_table(
    candidates: Sequence[Candidate], results: Results, schedules: Schedules
) -> pd.DataFrame:
    """One row a candidate: what was tried, what it has shown, and whether it was chosen; grid
    values and schedule as text.

    Candidates of several arms may be the same runs; `new_runs` counts those of no earlier row.
    """
    rows = []
    counted: set[str] = set()
    for candidate in candidates:
        accuracies, costs = (_of(candidate, results, name) for name in ("accuracy", "cost"))
        new = {cell.hash for cell in candidate.cells if cell.hash in results} - counted
        counted |= new
        rows.append(
            {
                "version": candidate.point.version,
                "arm": candidate.point.arm,
                "values": _text(candidate.point.values),
                "schedule": _text(candidate.schedule),
                "seeds": int(accuracies.count()),
                "new_runs": len(new),
                "accuracy_mean": accuracies.mean(),
                "accuracy_std": accuracies.std(),
                "others": candidate.others,
                "counted": candidate.counted,
                "by": candidate.by,
                "target": candidate.target,
                "reached": int(costs.count()),
                "cost_mean": costs.mean(),
                "cost_std": costs.std(),
                "chosen": schedules.get(candidate.place) == candidate.schedule,
            }
        )
    return pd.DataFrame(rows)


def _candidates(
    setting: Setting, place: str, point: Point, schedules: Schedules
) -> Iterator[Candidate]:
    of_point = search_of(setting.study, point)
    if of_point is None:
        return
    search, space = of_point
    start: Mapping[str, Any] = {}
    if (leader := followed(setting.study, point)) is not None:
        leading = place_of_choice(setting.study, leader)
        if leading is None or leading not in schedules:
            return
        start = schedules[leading]
    to_try = schedules_to_try(space, start)
    own = build_cell(setting, point.name, point, to_try[0]).config
    private = check_config(own).private
    counted = search.counted and private
    # Who promises nothing has nothing to spare, and gets the best for the study's own records.
    searching = search.parameters if private else {}
    over = search.over if private else {}
    if counted:
        if start:
            valid = "counts no choice that follows another's; leave schedule_of out"
            raise InputError(f"study.{setting.name}.search.counted", True, valid)
        searching = {**searching, "partition.held_out_by": "devices"}
        to_try, searching = _within_target(setting, search, point, to_try, searching)
    target = search.target_accuracy or setting.study.target_accuracy
    for number, schedule in enumerate(to_try, start=1):
        cells = tuple(_tried(setting, search, point, schedule, number, searching, over))
        spares = not any(_may_share(own.dataset, cell.config.dataset) for cell in cells)
        others = _text({**searching, **over}) if spares else ""
        yield Candidate(place, point, schedule, cells, others, counted, search.by, target)


def _tried(
    setting: Setting,
    search: Search,
    point: Point,
    schedule: Mapping[str, Any],
    number: int,
    searching: Mapping[str, Any],
    over: Grid,
) -> Iterator[Cell]:
    """The runs that try a schedule: one a seed and a value of what they are tried over."""
    held_out = {
        "partition.validation_fraction": search.validation_fraction,
        "training.evaluate_on": "validation",
    }
    others = [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
    seeds = search.seeds or [point.values.get(SEED, setting.base["seed"])]
    for seed, (place, other) in itertools.product(seeds, enumerate(others)):
        at = replace(point, values={**point.values, SEED: seed})
        name = f"search/{at.name}-{number}" + (f".{place}" if over else "")
        yield build_cell(setting, name, at, schedule, {**searching, **other, **held_out})


def _within_target(
    setting: Setting,
    search: Search,
    point: Point,
    to_try: Sequence[dict[str, Any]],
    searching: Mapping[str, Any],
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Schedules, and what runs of the search set, with the epsilon that each run may spend."""
    searched = [
        cell.config
        for number, schedule in enumerate(to_try, start=1)
        for cell in _tried(setting, search, point, schedule, number, searching, {})
    ]
    released = [build_cell(setting, point.name, point, each).config for each in to_try]
    targets = (setting.counting or if_gaussian)(searched, released, search.share)
    return (
        [{**schedule, "privacy.epsilon": targets.released} for schedule in to_try],
        {**searching, "privacy.epsilon": targets.searched},
    )


def _may_share(one: DatasetConfig, other: DatasetConfig) -> bool:
    """Whether two data sets may have records in common, as far as their names tell.

    What lies in a file or comes from a user's code may be records of any other but synthetic ones.
    """
    names = {one.name, other.name}
    if len(names) == 1 or "synthetic" in names:
        return len(names) == 1
    return any(name == "npz" or is_own(name) for name in names)


def _of(candidate: Candidate, results: Results, name: str) -> pd.Series:
    """The accuracy or cost by seed; NaN where no run finished."""
    tried = (results.get(cell.hash, Tried()) for cell in candidate.cells)
    return pd.Series([getattr(one, name) for one in tried], dtype=float)


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in values.items())
