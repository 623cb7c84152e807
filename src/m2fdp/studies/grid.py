"""A study's file and the cells that it expands to, each with a configuration known to be valid."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field, StringConstraints, ValidationError
from yaml import YAMLError

from m2fdp.algorithms import check_config
from m2fdp.config import Block, Config, essentials, flatten, parse_config
from m2fdp.errors import InputError
from m2fdp.reporting.style import ARM

BASE_ENV = "base"
# `kedro study report` summarises finished studies, so no study can have the name.
RESERVED_NAMES = ("report",)

ArmName = Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*$")]


class Study(Block):
    """The file `conf/<env>/studies/<name>.yml`: the product of its arms and its grid.

    Keys of parameters are dotted (`training.rounds`). An arm's value overrides the shared one.
    """

    title: str
    env: str | None = None  # the Kedro environment that the cells run in
    parameters: dict[str, Any] = Field(default_factory=dict)  # shared by all cells
    # Named groups of parameters that vary together, such as an algorithm and its schedule.
    arms: dict[ArmName, dict[str, Any]] = Field(default_factory=dict)
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One run of a study: what it sets, and the validated configuration that results."""

    name: str
    arm: str | None  # None in a study without arms
    overrides: dict[str, Any]  # nested, as Kedro's runtime parameters
    config: Config

    @property
    def hash(self) -> str:
        """SHA-256 of everything in the configuration that a result depends on."""
        content = json.dumps(essentials(self.config), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def tags(self) -> dict[str, str]:
        """How the study finds the cell's run again, and reports name it."""
        return {"cell_hash": self.hash} | ({} if self.arm is None else {ARM: self.arm})


def load_study(conf: Path, name: str, env: str | None = None) -> Study:
    """Read `<conf>/<env>/studies/<name>.yml`, or base's where the environment has none.

    Raises:
        InputError: no such study, a file that is not YAML, or keys that a study has not.
    """
    if name in RESERVED_NAMES:
        raise InputError("study", name, "the name is reserved; call the study something else")
    folders = [conf / layer / "studies" for layer in (env, BASE_ENV) if layer]
    files = {path.stem: path for folder in reversed(folders) for path in folder.glob("*.yml")}
    if name not in files:
        known = ", ".join(sorted(files)) or f"(none in {folders[-1]})"
        raise InputError("study", name, f"no such study; the studies are {known}")
    try:
        content = OmegaConf.to_container(OmegaConf.load(files[name]))
    except (YAMLError, OmegaConfBaseException) as error:
        raise InputError("study", name, f"not valid YAML: {' '.join(str(error).split())}") from None
    try:
        return Study.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["study", name, *map(str, first["loc"])])
        remedy = first["msg"]
        if first["type"] == "extra_forbidden":
            remedy = "unknown key; valid keys are " + ", ".join(sorted(Study.model_fields))
        value = "(missing)" if first["type"] == "missing" else first["input"]
        raise InputError(key, value, remedy) from None


def expand(
    name: str, study: Study, base: Mapping[str, Any], extra: Mapping[str, Any]
) -> tuple[Cell, ...]:
    """All cells of a study, in the file's order, the last key of the grid varying fastest.

    Args:
        name: of the study; its cells write to folders `<name>/<cell>`.
        base: the parameters of the environment, nested.
        extra: the command line's parameters, nested; they override the study's shared ones.

    Raises:
        InputError: a key set in two places, two equal cells, or a cell that
            `parse_config` or `check_config` refuses.
    """
    flat_extra = flatten(dict(extra))
    _check_keys(study, flat_extra)
    cells: dict[str, Cell] = {}
    hashes: dict[str, str] = {}
    for cell_name, arm, varied in _combinations(study):
        flat = flatten(study.parameters) | varied | flat_extra
        if "cell" in flat:
            raise InputError("cell", flat["cell"], "a study names its cells itself; remove the key")
        if "resume" in flat:
            raise InputError("resume", flat["resume"], "give `kedro study` --resume instead")
        overrides = nest(flat | {"cell": f"{name}/{cell_name}"})
        merged = OmegaConf.to_container(OmegaConf.merge(dict(base), overrides))
        config = parse_config(merged)
        check_config(config)
        cell = Cell(cell_name, arm, overrides, config)
        twin = cell_name if cell_name in cells else hashes.get(cell.hash)
        if twin is not None:
            raise InputError(
                f"study.{name}", cell_name, f"equals the cell {twin}; make every cell a run apart"
            )
        cells[cell_name] = cell
        hashes[cell.hash] = cell_name
    return tuple(cells.values())


def varied_keys(study: Study) -> tuple[str, ...]:
    """What tells the cells apart: `arm`, where there are arms, and the grid's dotted keys.

    An arm's name stands for all that the arm sets.
    """
    return (*([ARM] if study.arms else []), *study.grid)


def nest(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `m2fdp.config.flatten`; empty blocks, which set nothing, are left out.

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


def _check_keys(study: Study, extra: Mapping[str, Any]) -> None:
    of_arms = {key for arm in study.arms.values() for key in flatten(arm)}
    for key, values in study.grid.items():
        if key in of_arms | flatten(study.parameters).keys():
            raise InputError(f"grid.{key}", values, "the study sets this key elsewhere; keep one")
    for key, value in extra.items():
        if key in of_arms | study.grid.keys():
            raise InputError(key, value, "the study varies this key; edit its file instead")


def _combinations(study: Study) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Every cell's name and arm with the dotted parameters that only it sets."""
    arms: Mapping[str | None, dict[str, Any]] = study.arms or {None: {}}
    for (arm, parameters), values in itertools.product(
        arms.items(), itertools.product(*study.grid.values())
    ):
        point = dict(zip(study.grid, values, strict=True))
        labels = [arm, *(_label(key, value, study.grid) for key, value in point.items())]
        name = "-".join(filter(None, labels)) or "single"
        yield name, arm, flatten(parameters) | flatten(point)


def _label(key: str, value: Any, grid: Mapping[str, Any]) -> str:
    """A part of a cell's name: `m2fdp`, `epsilon_0.5`, `ratios_0.5_1.0`."""
    elements = value if isinstance(value, list) else [value]
    text = "_".join(re.sub(r"[^\w.-]+", "_", str(element)) for element in elements)
    if key == "algorithm":
        return text
    leaf = key.rpartition(".")[2]
    shared_leaf = sum(other.rpartition(".")[2] == leaf for other in grid) > 1
    return f"{key if shared_leaf else leaf}_{text}"
