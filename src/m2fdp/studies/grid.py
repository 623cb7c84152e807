"""The cells that a study expands to, each with a configuration known to be valid."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from m2fdp.adversaries.facts import check_attack
from m2fdp.claims.frames import ARM, VERSION
from m2fdp.core.config import Config, essentials, flatten
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.given.loading import in_blocks, overlaid, parse_config
from m2fdp.studies.study import Arm, Grid, Search, Space, Study, Version

if TYPE_CHECKING:
    from m2fdp.selection.accounting import Targets

SEED = "seed"
MAX_RUNS = 10_000
_STUDYS_OWN = {
    "cell": "a study names its cells itself; remove the key",
    "resume": "give `kedro study` --resume instead",
}
# Schedules, as dotted parameters, by `Choice.place`.
Schedules = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Setting:
    """What all cells of a study share."""

    name: str  # of the study; its cells write to folders `<name>/<cell>`
    study: Study
    base: Mapping[str, Any]  # the parameters of the environment, nested
    last: Mapping[str, Any]  # parameters that override all others: a scale's
    extra: Mapping[str, Any]  # the command line's, nested; never of a key that varies
    # From the runs of a counted search, the released ones and the search's share to what they may
    # spend; None = that of runs that are Gaussian in all, for which no data are read.
    counting: Callable[[Sequence[Config], Sequence[Config], float], Targets] | None = None


@dataclass(frozen=True)
class Point:
    """One combination of a study's version, arm and grid."""

    version: str | None  # None in a study without versions
    arm: str | None  # None in a study without arms
    values: Mapping[str, Any]  # by the grid's dotted keys

    @property
    def name(self) -> str:
        """Of the cell: `verified-p1_0.5-epsilon_1.0-seed_0`."""
        labels = [_label(key, value, self.values) for key, value in self.values.items()]
        return "-".join(filter(None, [self.version, self.arm, *labels])) or "single"


@dataclass(frozen=True)
class Cell:
    """One run of a study: what it sets, and the validated configuration that results."""

    name: str
    point: Point
    overrides: dict[str, Any]  # nested, as Kedro's runtime parameters
    config: Config
    pipelines: tuple[str, ...] = ()  # that it runs; none = all that trains and evaluates
    private: bool = True  # whether it adds noise at all
    schedule: Mapping[str, Any] = field(default_factory=dict)  # that was chosen, dotted
    twin: str = ""  # tells the cell from another arm's of the same configuration

    @property
    def hash(self) -> str:
        """SHA-256 of everything in the configuration that a result depends on, and of what runs."""
        content = json.dumps(essentials(self.config), sort_keys=True) + self.twin
        content += "".join(f"|{name}" for name in self.pipelines)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def tags(self) -> dict[str, str]:
        """How the study finds the cell's run again, and reports name it."""
        names = {VERSION: self.point.version, ARM: self.point.arm}
        return {"cell_hash": self.hash} | {k: v for k, v in names.items() if v is not None}


def points(study: Study) -> Iterator[Point]:
    """All combinations in the file's order, the last key of the grid varying fastest."""
    for line, grid in _lines(study):
        for values in itertools.product(*grid.values()):
            yield replace(line, values=dict(zip(grid, values, strict=True)))


def _lines(study: Study) -> Iterator[tuple[Point, Grid]]:
    """Every version's arms, as points without values, with the grid of each."""
    for version in study.versions or (None,):
        arms = study.versions[version].arms if version is not None else None
        for name in study.arms or (None,):
            if arms is None or name in arms:
                own = study.arms[name].over if name is not None else {}
                yield Point(version, name, {}), own | study.grid


def check_size(name: str, study: Study) -> None:
    """Refuse a study of more runs than anyone waits for, before any of its cells is made."""
    cells = searched = 0
    for line, grid in _lines(study):
        cells += _n_combinations(grid)
        if (choice := choice_of(study, line)) is not None:
            search = choice.search
            fixed = {*search.at} if search.counted else {SEED, *search.at}
            places = _n_combinations({k: v for k, v in grid.items() if k not in fixed})
            tries = len(search.seeds or [SEED]) * _n_combinations(search.over)
            searched += places * sum(map(_n_combinations, choice.space.grids)) * tries
    if cells + searched > MAX_RUNS:
        what = f"{cells:,} cells" + (f" and {searched:,} runs of its searches" if searched else "")
        remedy = f"at most {MAX_RUNS:,} runs in all are possible; give keys fewer values, or make "
        raise InputError(f"study.{name}.grid", what, remedy + "it several studies")


def _n_combinations(grid: Mapping[str, Sequence[Any]]) -> int:
    return prod(map(len, grid.values()))


def expand(setting: Setting, schedules: Schedules) -> tuple[Cell, ...]:
    """The cells of all points, in the order of `points`.

    Args:
        schedules: the schedules of searched arms, by place. An arm without its has no cells.

    Raises:
        InputError: a key set in two places, two cells of one arm that are one run, or a cell that
            `parse_config` or `check_config` refuses.
    """
    check_keys(setting)
    cells: dict[str, Cell] = {}
    by_hash: dict[str, Cell] = {}
    as_read: dict[object, Cell] = {}
    for point in points(setting.study):
        choice = choice_of(setting.study, point)
        if choice is not None and choice.place not in schedules:
            continue
        schedule = {} if choice is None else schedules[choice.place]
        cell = build_cell(setting, point.name, point, schedule)
        line, problem = (point.version, point.arm), ""
        other = cells.get(cell.name) or by_hash.get(cell.hash)
        # Cells of one line that add no noise are one run where all that they read is equal.
        reads = essentials(cell.config)
        if not cell.private:
            reads = {k: v for k, v in reads.items() if not k.startswith(("privacy.", "threat."))}
        reading = line, json.dumps(reads, sort_keys=True)
        if other is not None and (other.point.version, other.point.arm) == line:
            problem = f"equals the cell {other.name}; make every cell a run apart"
        elif (read := as_read.setdefault(reading, cell)) is not cell:
            problem = (
                f"is the run of {read.name}: {cell.config.algorithm} adds no noise and reads no "
                "privacy; give what does a study, or an arm with `over`, of its own"
            )
        if problem:
            raise InputError(f"study.{setting.name}", cell.name, problem)
        if other is not None:
            cell = replace(cell, twin=cell.name)
        cells[cell.name] = by_hash[cell.hash] = cell
    return tuple(cells.values())


@dataclass(frozen=True)
class Choice:
    """How the schedule of a point's cell is chosen."""

    search: Search
    space: Space
    # Where schedules are tried, with the values of `search.at`; with a seed if that is counted.
    point: Point
    leader: Choice | None  # whose result the candidates start from; None = from the study

    @property
    def place(self) -> str:
        """The choice's name: points that differ in nothing else share one."""
        point = self.point
        values = {k: v for k, v in point.values.items() if k not in self.search.at}
        return json.dumps([point.version, point.arm, values], sort_keys=True)

    def schedules(self, start: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Every schedule of the space, as dotted parameters over those that it starts from."""
        return [
            {**start, **dict(zip(grid, values, strict=True))}
            for grid in self.space.grids
            for values in itertools.product(*grid.values())
        ]

    @property
    def first(self) -> dict[str, Any]:
        """What is tried first."""
        return self.schedules({} if self.leader is None else self.leader.first)[0]


def choice_of(study: Study, point: Point) -> Choice | None:
    """What chooses the schedule of the point's cell; None where nothing does."""
    arm, version = study.arms.get(point.arm or ""), study.versions.get(point.version or "")
    search = None if version is None else version.search
    if arm is None or arm.space is None or search is None or arm.space not in search.spaces:
        return None
    space, counted = search.spaces[arm.space], search.counted
    values = {k: search.at.get(k, v) for k, v in point.values.items() if k != SEED or counted}
    leads = space.schedule_of and choice_of(study, replace(point, arm=space.schedule_of))
    return Choice(search, space, replace(point, values=values), leads or None)


def build_cell(
    setting: Setting,
    name: str,
    point: Point,
    schedule: Mapping[str, Any],
    searching: Mapping[str, Any] | None = None,
) -> Cell:
    """The cell of a point under a schedule, which overrides what version, arm and grid say.

    Args:
        searching: what a search's run sets, dotted. It overrides all else, or records that the
            search is to spare would come back.
    """
    study, flat = setting.study, dict[str, Any]()
    blocks = study.versions.get(point.version or ""), study.arms.get(point.arm or "")
    layers = [study.parameters, *(block.parameters for block in blocks if block), point.values]
    for layer in (*layers, schedule, setting.last, setting.extra, searching or {}):
        flat = _over(flat, flatten(dict(layer)))
    for key, remedy in _STUDYS_OWN.items():
        if key in flat:
            raise InputError(key, flat[key], remedy)
    flat["cell"] = f"{setting.name}/{name}"
    set_ = ((key, value) for key, value in flat.items() if value != {})
    overrides = in_blocks(set_, f"study.{setting.name}")
    config = parse_config(overlaid(setting.base, overrides))
    plan = check_config(config, frozenset(study.pipelines))
    if "attack" in study.pipelines:
        check_attack(config, plan)
    return Cell(name, point, overrides, config, tuple(study.pipelines), plan.private, schedule)


def _over(flat: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys with a layer over them; a block takes the place of null, and null a block's."""

    def goes(key: str) -> bool:
        in_block = flat[key] is None and any(new.startswith(f"{key}.") for new in layer)
        return in_block or any(key.startswith(f"{new}.") for new in layer if layer[new] is None)

    return {key: value for key, value in flat.items() if not goes(key)} | dict(layer)


def varied_keys(study: Study) -> tuple[str, ...]:
    """What tells the cells apart: `version` and `arm`, where there are any, each for all that it
    sets, and dotted keys of the grids."""
    names = [name for name, blocks in ((VERSION, study.versions), (ARM, study.arms)) if blocks]
    return (*names, *_grid_keys(study))


def keys_by_seed(study: Study) -> frozenset[str]:
    """What counted searches choose for each seed anew."""
    return _keys_tried([search for search in study.searches if search.counted])


def _keys_tried(searches: Iterable[Search]) -> frozenset[str]:
    """The keys of the schedules that searches choose among."""
    spaces = (space for search in searches for space in search.spaces.values())
    return frozenset(key for space in spaces for grid in space.grids for key in grid)


def _grid_keys(study: Study) -> tuple[str, ...]:
    """Of the study's grid and of all arms' own."""
    grids = [*(arm.over for arm in study.arms.values()), study.grid]
    return tuple(dict.fromkeys(key for grid in grids for key in grid))


def check_keys(setting: Setting) -> None:
    """Refuse keys that are set in two places."""
    study, arms = setting.study, setting.study.arms.values()
    apart = set(_keys_tried(study.searches))
    blocks: list[Version | Arm] = [*study.versions.values(), *arms]
    for block in blocks:
        apart |= flatten(block.parameters).keys()
    varied = _grid_keys(study)
    for key in varied:
        values = study.grid.get(key) or next(arm.over[key] for arm in arms if key in arm.over)
        if key in apart | flatten(study.parameters).keys():
            raise InputError(f"grid.{key}", values, "the study sets this key elsewhere; keep one")
        if key in study.grid and any(key in arm.over for arm in arms):
            raise InputError(f"grid.{key}", values, "an arm has a grid of it too; keep one")
    for key, value in (item for search in study.searches for item in search.at.items()):
        if key not in varied or key == SEED:
            raise InputError(f"search.at.{key}", value, "is not a key that the grid varies")
    for key, value in flatten(dict(setting.extra)).items():
        if key in apart | {*varied, *setting.last}:
            raise InputError(key, value, "the study varies this key; change its values there")


def _label(key: str, value: Any, grid: Mapping[str, Any]) -> str:
    """A part of a cell's name: `m2fdp`, `epsilon_0.5`, `ratios_0.5_1.0`."""
    elements = value if isinstance(value, list) else [value]
    text = "_".join(re.sub(r"[^\w.-]+", "_", str(element)) for element in elements)
    if key == "algorithm":
        return text
    leaf = key.rpartition(".")[2]
    shared_leaf = sum(other.rpartition(".")[2] == leaf for other in grid) > 1
    return f"{key if shared_leaf else leaf}_{text}"
