"""How a study chooses schedules: by accuracy on records that are held out of the training data.

The choice looks at the data, and no epsilon of the final runs counts it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from m2fdp.studies.grid import (
    SEED,
    Cell,
    Point,
    Schedules,
    Setting,
    build_cell,
    place_of_choice,
    search_of,
)
from m2fdp.studies.study import Study

SEARCH_COLUMNS = (
    "version",
    "arm",
    "values",
    "schedule",
    "seeds",
    "new_runs",
    "accuracy_mean",
    "accuracy_std",
    "chosen",
)


@dataclass(frozen=True)
class Candidate:
    """A schedule that an arm may take, and the runs that try it."""

    place: str  # of the choice, as `place_of_choice` names it
    point: Point  # where it is tried; its values hold no seed
    schedule: dict[str, Any]  # dotted parameters
    cells: tuple[Cell, ...]  # one a seed


def next_candidates(
    setting: Setting,
    wanted: Iterable[Point],
    schedules: Schedules,
    tried: Sequence[Candidate],
) -> tuple[Candidate, ...]:
    """The candidates of all choices that nothing was tried for yet and that wait for no other.

    Args:
        wanted: the points whose schedules are to be chosen, if they have any to choose.
        schedules: the choices made.
        tried: the candidates that have been run.

    Raises:
        InputError: a candidate's configuration is refused.
    """
    done = {candidate.place for candidate in tried}
    waiting: dict[str, Point] = {}
    every = (p for point in wanted for p in (_followed(setting.study, point), point))
    for point in filter(None, every):
        place, found = place_of_choice(setting.study, point), search_of(setting.study, point)
        if place is not None and found is not None and place not in done:
            search, _ = found
            values = {key: value for key, value in point.values.items() if key != SEED}
            here = {key: value for key, value in search.at.items() if key in values}
            waiting.setdefault(place, replace(point, values=values | here))
    return tuple(
        candidate
        for place, point in waiting.items()
        for candidate in _candidates(setting, place, point, schedules)
    )


def choose(
    candidates: Sequence[Candidate], accuracy: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """The schedule with the best mean accuracy of each place; of equals the first.

    Args:
        accuracy: on the held-out records, by the hash of a cell. A candidate that lacks a
            seed's is out.
    """
    best: dict[str, tuple[float, dict[str, Any]]] = {}
    for candidate in candidates:
        mean = _accuracies(candidate, accuracy).mean(skipna=False)
        if mean > best.get(candidate.place, (-math.inf, {}))[0]:
            best[candidate.place] = (mean, candidate.schedule)
    return {place: schedule for place, (_, schedule) in best.items()}


def search_table(
    candidates: Sequence[Candidate], accuracy: Mapping[str, float], schedules: Schedules
) -> pd.DataFrame:
    """One row a candidate with `SEARCH_COLUMNS`; grid values and schedule as text.

    Candidates of several arms may be the same runs; `new_runs` counts those of no earlier row.
    """
    rows = []
    counted: set[str] = set()
    for candidate in candidates:
        found = _accuracies(candidate, accuracy)
        new = {cell.hash for cell in candidate.cells if cell.hash in accuracy} - counted
        counted |= new
        rows.append(
            {
                "version": candidate.point.version,
                "arm": candidate.point.arm,
                "values": _text(candidate.point.values),
                "schedule": _text(candidate.schedule),
                "seeds": int(found.count()),
                "new_runs": len(new),
                "accuracy_mean": found.mean(),
                "accuracy_std": found.std(),
                "chosen": schedules.get(candidate.place) == candidate.schedule,
            }
        )
    return pd.DataFrame(rows, columns=list(SEARCH_COLUMNS))


def search_markdown(table: pd.DataFrame) -> str:
    """What was chosen for whom from how many candidates, and the search's budget, in Markdown."""
    lines = [
        "Schedules were chosen by their mean accuracy on training records that were held out and "
        f"that no run of the search trained on: {table['new_runs'].sum()} runs. The released runs "
        "train on all training records. Held-out records lie in clear with the distrusted cloud, "
        "and the accuracies on them are un-noised: ε counts a released run, not the search that "
        "chose its schedule on records that the run then trains on.\n",
        "| version | arm | grid | candidates | seeds | chosen schedule | held-out accuracy |",
        "|---|---|---|---:|---:|---|---:|",
    ]
    for (version, arm, values), rows in table.groupby(["version", "arm", "values"], sort=False):
        chosen = rows[rows["chosen"]]
        row = rows.iloc[0] if chosen.empty else chosen.iloc[0]
        schedule = "none finished" if chosen.empty else row["schedule"]
        accuracy = "–" if chosen.empty else f"{row['accuracy_mean']:.3f}"
        if row["seeds"] > 1 and not chosen.empty:
            accuracy += f" ± {row['accuracy_std']:.3f}"
        lines.append(
            f"| {version} | {arm} | {values} | {len(rows)} | {row['seeds']} | {schedule} "
            f"| {accuracy} |"
        )
    return "\n".join(lines) + "\n"


def _followed(study: Study, point: Point) -> Point | None:
    """The point whose chosen schedule the point's candidates start from; None if none is."""
    found = search_of(study, point)
    if found is None or found[1].schedule_of is None:
        return None
    return replace(point, arm=found[1].schedule_of)


def _candidates(
    setting: Setting, place: str, point: Point, schedules: Schedules
) -> Iterator[Candidate]:
    found = search_of(setting.study, point)
    if found is None:
        return
    search, space = found
    start: Mapping[str, Any] = {}
    if (followed := _followed(setting.study, point)) is not None:
        leading = place_of_choice(setting.study, followed)
        if leading is None or leading not in schedules:
            return
        start = schedules[leading]
    changes = (
        dict(zip(grid, values, strict=True))
        for grid in space.grids
        for values in itertools.product(*grid.values())
    )
    held_out = {
        "partition.validation_fraction": search.validation_fraction,
        "training.evaluate_on": "validation",
    }
    for number, change in enumerate(changes, start=1):
        schedule = {**start, **change}
        cells = []
        for seed in search.seeds:
            at = replace(point, values={**point.values, SEED: seed})
            name = f"search/{at.name}-{number}"
            cells.append(build_cell(setting, name, at, schedule | held_out))
        yield Candidate(place, point, schedule, tuple(cells))


def _accuracies(candidate: Candidate, accuracy: Mapping[str, float]) -> pd.Series:
    """By seed; NaN where no run finished."""
    return pd.Series([accuracy.get(cell.hash, math.nan) for cell in candidate.cells], dtype=float)


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in values.items())
