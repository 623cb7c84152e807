"""The cells that a study expands to, each with a configuration known to be valid."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from m2fdp.adversaries.facts import check_attack
from m2fdp.claims.frames import ARM, VERSION
from m2fdp.core.config import Config, essentials, flatten, overlaid, parse_config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.studies.study import Arm, Grid, Search, Space, Study

if TYPE_CHECKING:
    from m2fdp.selection.procedures import Counting

SEED = "seed"
MAX_RUNS = 10_000
# Schedules, as dotted parameters, by the place that `Point.place` names.
Schedules = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Setting:
    """What all cells of a study share."""

    name: str  # of the study; its cells write to folders `<name>/<cell>`
    study: Study
    base: Mapping[str, Any]  # the parameters of the environment, nested
    last: Mapping[str, Any]  # parameters that override all others: a scale's
    extra: Mapping[str, Any]  # the command line's, nested; never of a key that varies
    # What runs of a counted search may spend; None = that of runs that are Gaussian in all.
    counting: Counting | None = None


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
        for name, arm in study.arms.items() or ((None, None),):
            if arms is None or name in arms:
                yield Point(version, name, {}), (arm.over if arm is not None else {}) | study.grid


def check_size(name: str, study: Study) -> None:
    """Refuse a study of more runs than anyone waits for, before any of its cells is made.

    Raises:
        InputError: with the number of its cells and of its searches' runs.
    """
    cells = searched = 0
    for line, grid in _lines(study):
        cells += _n_combinations(grid)
        if (of_line := search_of(study, line)) is not None:
            search, space = of_line
            fixed = {*search.at} if search.counted else {SEED, *search.at}
            places = _n_combinations({k: v for k, v in grid.items() if k not in fixed})
            tries = len(search.seeds or [SEED]) * _n_combinations(search.over)
            searched += places * sum(map(_n_combinations, space.grids)) * tries
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
        place = place_of_choice(setting.study, point)
        if place is not None and place not in schedules:
            continue
        schedule = {} if place is None else schedules[place]
        cell = build_cell(setting, point.name, point, schedule)
        other = cells.get(cell.name) or by_hash.get(cell.hash)
        if other is not None and _group(other) == _group(cell):
            raise InputError(
                f"study.{setting.name}",
                cell.name,
                f"equals the cell {other.name}; make every cell a run apart",
            )
        if (read := as_read.setdefault((_group(cell), _unprotected(cell)), cell)) is not cell:
            raise InputError(
                f"study.{setting.name}",
                cell.name,
                f"is the run of {read.name}: {cell.config.algorithm} adds no noise and reads no "
                "privacy; give what does a study, or an arm with `over`, of its own",
            )
        if other is not None:
            cell = replace(cell, twin=cell.name)
        cells[cell.name] = by_hash[cell.hash] = cell
    return tuple(cells.values())


def _unprotected(cell: Cell) -> str:
    """What cells without noise have in common that are one run; all others differ."""
    read = essentials(cell.config)
    if not cell.private:
        read = {k: v for k, v in read.items() if not k.startswith(("privacy.", "threat."))}
    return json.dumps(read, sort_keys=True)


def _group(cell: Cell) -> tuple[str | None, str | None]:
    """What has a line of its own in reports."""
    return cell.point.version, cell.point.arm


def place_of_choice(study: Study, point: Point) -> str | None:
    """Names the choice of a schedule that the point's cell takes; None where none is searched.

    Points that differ only in their seed, unless the search is counted, or in keys of `search.at`,
    share one choice.
    """
    of_point = search_of(study, point)
    if of_point is None:
        return None
    search, _ = of_point
    values = {k: v for k, v in chosen_for(search, point).items() if k not in search.at}
    return json.dumps([point.version, point.arm, values], sort_keys=True)


def chosen_for(search: Search, point: Point) -> dict[str, Any]:
    """The point's values; its seed only if that has a search of its own."""
    return {k: v for k, v in point.values.items() if k != SEED or search.counted}


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

    Raises:
        InputError: its configuration is refused, or sets what only the study may.
    """
    study = setting.study
    overrides, config = _configured(setting, name, point, schedule, searching)
    plan = check_config(config, frozenset(study.pipelines))
    if "attack" in study.pipelines:
        check_attack(config, plan)
    return Cell(name, point, overrides, config, tuple(study.pipelines), private=plan.private)


def _configured(
    setting: Setting,
    name: str,
    point: Point,
    schedule: Mapping[str, Any],
    searching: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], Config]:
    """What the cell of a point sets, nested, and its configuration; see `build_cell`.

    Raises:
        InputError: `parse_config` refuses it, or it sets what only the study may.
    """
    study, arm = setting.study, arm_of(setting.study, point)
    version = study.versions[point.version].parameters if point.version is not None else {}
    flat: dict[str, Any] = {}
    for layer in (
        study.parameters,
        version,
        arm.parameters if arm is not None else {},
        point.values,
        schedule,
        setting.last,
        setting.extra,
        searching or {},
    ):
        flat = _over(flat, flatten(dict(layer)))
    if "cell" in flat:
        raise InputError("cell", flat["cell"], "a study names its cells itself; remove the key")
    if "resume" in flat:
        raise InputError("resume", flat["resume"], "give `kedro study` --resume instead")
    overrides = nest(flat | {"cell": f"{setting.name}/{name}"})
    return overrides, parse_config(overlaid(setting.base, overrides))


def _over(flat: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys with a layer over them; a block takes the place of null, and null a block's."""
    lasting = {
        key: value
        for key, value in flat.items()
        if not any(
            (new.startswith(f"{key}.") and value is None)
            or (key.startswith(f"{new}.") and layer[new] is None)
            for new in layer
        )
    }
    return lasting | dict(layer)


def arm_of(study: Study, point: Point) -> Arm | None:
    """The point's arm; None in a study without arms."""
    return None if point.arm is None else study.arms[point.arm]


def search_of(study: Study, point: Point) -> tuple[Search, Space] | None:
    """What chooses the point's schedule, and among which; None where nothing does."""
    arm = arm_of(study, point)
    search = None if point.version is None else study.versions[point.version].search
    if arm is None or arm.space is None or search is None or arm.space not in search.spaces:
        return None
    return search, search.spaces[arm.space]


def followed(study: Study, point: Point) -> Point | None:
    """The point whose chosen schedule the point's candidates start from; None if none is."""
    of_point = search_of(study, point)
    if of_point is None or of_point[1].schedule_of is None:
        return None
    return replace(point, arm=of_point[1].schedule_of)


def schedules_to_try(space: Space, start: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every schedule of a space, as dotted parameters over those that it starts from."""
    return [
        {**start, **dict(zip(grid, values, strict=True))}
        for grid in space.grids
        for values in itertools.product(*grid.values())
    ]


def first_schedule(study: Study, point: Point) -> dict[str, Any]:
    """What the point's search would try first; nothing where its schedule is not searched."""
    of_point, leading = search_of(study, point), followed(study, point)
    if of_point is None:
        return {}
    start = {} if leading is None else first_schedule(study, leading)
    return schedules_to_try(of_point[1], start)[0]


def varied_keys(study: Study) -> tuple[str, ...]:
    """What tells the cells apart: `version` and `arm`, where there are any, and dotted keys of
    the grids.

    A version's or arm's name stands for all that it sets.
    """
    names = [name for name, blocks in ((VERSION, study.versions), (ARM, study.arms)) if blocks]
    return (*names, *_grid_keys(study))


def keys_by_seed(study: Study) -> frozenset[str]:
    """What counted searches choose for each seed anew."""
    searches = [version.search for version in study.versions.values()]
    return frozenset(
        key
        for search in searches
        if search is not None and search.counted
        for space in search.spaces.values()
        for grid in space.grids
        for key in grid
    )


def nest(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `m2fdp.core.config.flatten`; empty blocks, which set nothing, are left out.

    Raises:
        InputError: a key that is a value and a block at once.
    """
    nested: dict[str, Any] = {}
    for key, value in dotted.items():
        if value == {}:
            continue
        *blocks, leaf = key.split(".")
        block = nested
        for part in blocks:
            block = block.setdefault(part, {})
            if not isinstance(block, dict):
                raise InputError(key, value, f"{part} is set to a plain value as well; keep one")
        if leaf in block:
            raise InputError(key, value, "the block and a key inside it are both set; keep one")
        block[leaf] = value
    return nested


def _grid_keys(study: Study) -> tuple[str, ...]:
    """Of the study's grid and of all arms' own."""
    grids = [*(arm.over for arm in study.arms.values()), study.grid]
    return tuple(dict.fromkeys(key for grid in grids for key in grid))


def check_keys(setting: Setting) -> None:
    """Refuse keys that are set in two places.

    Raises:
        InputError: it names the key.
    """
    study = setting.study
    versions, arms = study.versions.values(), study.arms.values()
    of_versions = {key for version in versions for key in flatten(version.parameters)}
    of_arms = {key for arm in arms for key in flatten(arm.parameters)}
    searches = [version.search for version in versions if version.search is not None]
    of_spaces = {
        key
        for search in searches
        for space in search.spaces.values()
        for grid in space.grids
        for key in grid
    }
    for key in _grid_keys(study):
        values = study.grid.get(key) or next(arm.over[key] for arm in arms if key in arm.over)
        if key in of_versions | of_arms | of_spaces | flatten(study.parameters).keys():
            raise InputError(f"grid.{key}", values, "the study sets this key elsewhere; keep one")
        if key in study.grid and any(key in arm.over for arm in arms):
            raise InputError(f"grid.{key}", values, "an arm has a grid of it too; keep one")
    for search in searches:
        for key, value in search.at.items():
            if key not in _grid_keys(study) or key == SEED:
                raise InputError(f"search.at.{key}", value, "is not a key that the grid varies")
    for key, value in flatten(dict(setting.extra)).items():
        if key in of_versions | of_arms | of_spaces | set(_grid_keys(study)) | setting.last.keys():
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
