"""How a study chooses schedules: by accuracy on records that are held out of the training data, or
by what it takes to get to a target there.

It looks at the study's own records, which no epsilon counts; at others; or at its own behind noise,
so that all together keeps epsilon.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import pandas as pd

from m2fdp.core.config import Config, DatasetConfig
from m2fdp.core.config.keys import OF_LABELS
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import counted
from m2fdp.core.own_code import is_own
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.experiment import Experiment
from m2fdp.selection.accounting import Procedure, Targets, split_target
from m2fdp.studies import grid
from m2fdp.studies.grid import Cell, Choice, Point, Schedules, Setting
from m2fdp.studies.launcher import search_runs
from m2fdp.studies.study import Grid


class Tried(NamedTuple):
    """What a candidate's run has shown on the held-out records."""

    accuracy: float = math.nan
    cost: float = math.nan  # energy or delay to the target, if that is asked for and reached


# By the hash of a cell.
Results = Mapping[str, Tried]
SEARCHING = {"stage": "search"}  # a tag of runs that only serve a choice
# Where all is too much together, shifts get less by what is too much, and by this besides.
_MARGIN = 0.998
_MOST_TRIES = 10


@dataclass(frozen=True)
class Candidate:
    """A schedule that an arm may take, and the runs that try it."""

    choice: Choice
    schedule: dict[str, Any]  # dotted parameters
    cells: tuple[Cell, ...]  # one a seed and a value of `search.over`
    others: str = ""  # what it was tried on, if on no record of those that the arm trains on
    counted: bool = False  # whether its runs and their scores are counted
    target: float | None = None  # the accuracy that it is to reach, if it is chosen by a cost

    @property
    def by(self) -> str:
        """What it is chosen by."""
        return self.choice.search.by

    def shown(self, results: Results) -> tuple[pd.Series, pd.Series]:
        """The accuracies and the costs of its runs; NaN where none has finished."""
        tried = [results.get(cell.hash, Tried()) for cell in self.cells]
        table = pd.DataFrame(tried, columns=["accuracy", "cost"], dtype=float)
        return table["accuracy"], table["cost"]


def next_candidates(
    setting: Setting, chosen: Iterable[Point], schedules: Schedules, tried: Sequence[Candidate]
) -> tuple[Candidate, ...]:
    """The candidates of all choices that nothing was tried for yet and that wait for no other."""
    waiting: dict[str, Choice] = {}
    for choice in filter(None, (grid.choice_of(setting.study, point) for point in chosen)):
        for each in filter(None, (choice.leader, choice)):
            waiting.setdefault(each.place, each)
    done = {candidate.choice.place for candidate in tried}
    choices = [choice for place, choice in waiting.items() if place not in done]
    return tuple(one for choice in choices for one in _candidates(setting, choice, schedules))


def search_all(
    setting: Setting, chosen: Sequence[Point], decide: Callable[[Sequence[Candidate]], Schedules]
) -> tuple[Schedules, Sequence[Candidate]]:
    """The schedules that the searches of some points choose, and all candidates of them."""
    schedules: dict[str, Mapping[str, Any]] = {}
    tried: list[Candidate] = []
    while candidates := next_candidates(setting, chosen, schedules, tried):
        schedules |= decide(candidates)
        tried.extend(candidates)
    return schedules, tried


def first_of(candidates: Sequence[Candidate]) -> Schedules:
    """The schedule that is tried first, whatever it comes to."""
    return {one.choice.place: one.schedule for one in reversed(candidates)}


def choose(candidates: Sequence[Candidate], results: Results) -> dict[str, dict[str, Any]]:
    """The best schedule of each place; of equals the first.

    The best has the highest mean accuracy, or reaches the target with the most seeds, and of those
    at the least mean cost. A candidate that lacks a seed's run is out.
    """
    best: dict[str, tuple[tuple[float, float], dict[str, Any]]] = {}
    for candidate in candidates:
        accuracies, costs = candidate.shown(results)
        if accuracies.isna().any():
            continue
        score = accuracies.mean(), 0.0
        if candidate.by != "accuracy":
            score = costs.count(), -costs.mean() if costs.count() else accuracies.mean()
        place = candidate.choice.place
        if place not in best or score > best[place][0]:
            best[place] = (score, candidate.schedule)
    return {place: schedule for place, (_, schedule) in best.items()}


def search_table(
    candidates: Sequence[Candidate], results: Results, schedules: Schedules
) -> pd.DataFrame:
    """One row a candidate: what was tried, what it has shown, and whether it was chosen.

    Candidates of several arms may be the same runs; `new_runs` counts those of no earlier row.
    """
    rows = []
    listed: set[str] = set()
    for candidate in candidates:
        point, place = candidate.choice.point, candidate.choice.place
        accuracies, costs = candidate.shown(results)
        new = {cell.hash for cell in candidate.cells if cell.hash in results} - listed
        listed |= new
        rows.append(
            {
                "version": point.version,
                "arm": point.arm,
                "values": _text(point.values),
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
                "chosen": schedules.get(place) == candidate.schedule,
            }
        )
    return pd.DataFrame(rows)


def check_none_else(setting: Setting, candidates: Sequence[Candidate]) -> None:
    """Refuse to go on with a counted search that once had other candidates, and so other targets:
    what their runs have shown, finished or not, comes on top, and no ledger has it."""
    choices = (one.choice.point for one in candidates if one.counted)
    arms = {(point.version, point.arm) for point in choices}
    (stage,) = SEARCHING.values()
    runs = search_runs(f"tags.study = '{setting.name}' and tags.stage = '{stage}'") if arms else []
    runs = [run for run in runs if (run.data.tags.get("version"), run.data.tags.get("arm")) in arms]

    def others(known: Sequence[Candidate]) -> list[str]:
        hashes = {cell.hash for one in known for cell in one.cells}
        return [r.info.run_name for r in runs if r.data.tags.get("cell_hash") not in hashes]

    # Only some of the study's points may be due, and the others have candidates of their own.
    if others(candidates) and (
        names := others(next_candidates(setting, tuple(grid.points(setting.study)), {}, ()))
    ):
        problem = (
            f"counts the candidates that there are now, and {counted(len(names), 'run')} of this "
            f"search had other settings, such as {names[0]}: restore them, or leave --resume out, "
            "which searches anew on top of what was seen"
        )
        raise InputError(f"study.{setting.name}.search.counted", True, problem)


def _candidates(setting: Setting, choice: Choice, schedules: Schedules) -> Iterator[Candidate]:
    search, point = choice.search, choice.point
    start: Mapping[str, Any] = {}
    if choice.leader is not None:
        if choice.leader.place not in schedules:
            return
        start = schedules[choice.leader.place]
    to_try = choice.schedules(start)
    own = grid.build_cell(setting, point.name, point, to_try[0])
    # Who promises nothing has nothing to spare, and gets the best for the study's own records.
    searching = search.parameters if own.private else {}
    over = search.over if own.private else {}
    behind_noise = search.counted and own.private
    if behind_noise:
        if start:
            valid = "counts no choice that follows another's; leave schedule_of out"
            raise InputError(f"study.{setting.name}.search.counted", True, valid)
        searching = {**searching, "partition.held_out_by": "devices"}
        to_try, searching = _within_target(setting, choice, to_try, searching)
    target = search.target_accuracy or setting.study.target_accuracy
    for number, schedule in enumerate(to_try, start=1):
        cells = tuple(_tried(setting, choice, schedule, number, searching, over))
        spares = not any(_may_share(own.config.dataset, cell.config.dataset) for cell in cells)
        others = _text({**searching, **over}) if spares else ""
        yield Candidate(choice, schedule, cells, others, behind_noise, target)


def _tried(
    setting: Setting,
    choice: Choice,
    schedule: Mapping[str, Any],
    number: int,
    searching: Mapping[str, Any],
    over: Grid,
) -> Iterator[Cell]:
    """The runs that try a schedule: one a seed and a value of what they are tried over."""
    held_out = {
        "partition.validation_fraction": choice.search.validation_fraction,
        "training.evaluate_on": "validation",
    }
    others = [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
    point = choice.point
    seeds = choice.search.seeds or [point.values.get(grid.SEED, setting.base["seed"])]
    for seed, (place, other) in itertools.product(seeds, enumerate(others)):
        at = replace(point, values={**point.values, grid.SEED: seed})
        name = f"search/{at.name}-{number}" + (f".{place}" if over else "")
        yield grid.build_cell(setting, name, at, schedule, {**searching, **other, **held_out})


def _within_target(
    setting: Setting, choice: Choice, to_try: Sequence[dict[str, Any]], searching: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Schedules, and what runs of the search set, with the epsilon that each run may spend."""
    searched, released, point = [], [], choice.point
    for number, schedule in enumerate(to_try, start=1):
        cells = _tried(setting, choice, schedule, number, searching, {})
        searched += [cell.config for cell in cells]
        released.append(grid.build_cell(setting, point.name, point, schedule).config)
    if setting.counting is not None:
        targets = setting.counting(searched, released, choice.search.share)
    else:
        privacy = released[0].privacy
        targets = split_target(privacy.epsilon, privacy.delta, len(searched), choice.search.share)
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
    return any(name in OF_LABELS or is_own(name) for name in names)


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in values.items())


def procedure_of(released: Config, searched: Sequence[Config]) -> Procedure:
    """The procedure of these configurations' runs; an `InputError` where a run can't be."""
    return Procedure(_ledger_of(released), tuple(map(_ledger_of, searched)))


def verified_targets(
    searched: Sequence[Config], released: Sequence[Config], share: float
) -> Targets:
    """What a search and the run that it chooses may spend, so that together they keep epsilon by
    their ledgers, whichever is released.

    Args:
        searched: the configuration of each run of the search, with the target of the whole.
        released: the configuration of the released run under each schedule that may be chosen.
        share: the search's part of the squared shift.

    Raises:
        InputError: data that can't be had, or no such targets.
    """
    privacy, factor = released[0].privacy, 1.0
    for _ in range(_MOST_TRIES):
        found = split_target(privacy.epsilon, privacy.delta, len(searched), share, factor)
        ledgers = tuple(_ledger_of(_towards(each, found.searched)) for each in searched)
        whole = max(
            Procedure(_ledger_of(_towards(each, found.released)), ledgers).verified()
            for each in released
        )
        if whole <= privacy.epsilon:
            return found
        factor *= _MARGIN * privacy.epsilon / whole
    raise InputError(
        "search.counted",
        True,
        f"finds no noise for which {len(searched)} runs and the released one keep "
        f"privacy.epsilon: {privacy.epsilon:g} together; try fewer schedules, or full batches",
    )


def _towards(config: Config, epsilon: float) -> Config:
    """The configuration with another target."""
    privacy = config.privacy.model_copy(update={"epsilon": epsilon})
    return config.model_copy(update={"privacy": privacy})


def _ledger_of(config: Config) -> Ledger:
    return _ledger_of_text(config.model_dump_json())


@cache  # checks, searches and reports ask for the same ones
def _ledger_of_text(text: str) -> Ledger:
    config = Config.model_validate_json(text)
    dataset = _dataset(config.dataset.model_dump_json())
    return Experiment.from_config(config, dataset).calibrate().mechanism.ledger


@cache
def _dataset(text: str) -> Dataset:
    return load_dataset(DatasetConfig.model_validate_json(text))
