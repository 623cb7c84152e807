"""What was asked for when a study is run, the study that it means, and what is wrong with it: found
before Kedro's session, MLflow and torch are imported."""

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yaml import YAMLError

from m2fdp.assignments import split_outside
from m2fdp.claims.declared import Layout, Panel
from m2fdp.claims.frames import ARM, VERSION, selecting
from m2fdp.core.config import flatten
from m2fdp.core.errors import InputError, among
from m2fdp.given.yaml_files import read_value
from m2fdp.studies import grid as grids
from m2fdp.studies.grid import Point, Setting, points, varied_keys
from m2fdp.studies.study import SWEEP, Study, load_study, scaled

OVER, SEEDS, ONLY = "--over", "--seeds", "--only"
DEFAULT_SEEDS = 3
_FORM = "give KEY=VALUE|VALUE, such as privacy.epsilon=1|2|4"
_LOGARITHMIC = 10  # times the least value is the largest: an axis of factors
_MOST_COLUMNS = 3


@dataclass(frozen=True)
class Order:
    """What was asked for: a study's file, one of its scales, an environment, parameters."""

    name: str
    scale: str | None = None  # None = the study itself
    env: str | None = None  # the Kedro environment; None = the study's own, or Kedro's default
    params: Mapping[str, Any] = field(default_factory=dict)  # nested; override shared ones
    # Of a sweep, as `sweep` reads them.
    over: Sequence[str] = ()
    seeds: int | None = None

    @property
    def identity(self) -> str:
        """In another environment or scale a study is another one, with files of its own; so is a
        sweep over other keys."""
        keys = (re.sub(r"[^\w.]+", "_", key) for key in sweep_keys(self.over))
        return "-".join(filter(None, [self.name, *keys, self.env, self.scale]))

    @property
    def run_name(self) -> str:
        """The identity, and what `--params` changes."""
        changed = flatten(dict(self.params)).items()
        labels = [re.sub(r"[^\w.+-]+", "_", f"{key}_{value}") for key, value in changed]
        return "-".join([self.identity, *labels])

    @property
    def command(self) -> str:
        """What a user types for it."""
        params = ",".join(f"{key}={value}" for key, value in flatten(dict(self.params)).items())
        options = {"seeds": self.seeds, "scale": self.scale, "env": self.env, "params": params}
        words = [f"--{key}={value}" for key, value in options.items() if value]
        over = [shlex.quote(f"--over={text}") for text in self.over]  # a bar is a pipe to a shell
        return " ".join(["kedro study", self.name, *over, *words])

    def study(self, conf: Path, env: str) -> Study:
        """The study that it means."""
        if self.name == SWEEP:
            loaded = sweep(self.over, self.seeds)
        else:
            given = {OVER: ", ".join(self.over) if self.over else None, SEEDS: self.seeds}
            for option, value in given.items():
                if value is not None:
                    says = f"the file of {self.name} says what varies"
                    raise InputError(
                        option, value, f"is an option of `kedro study {SWEEP}`; {says}"
                    )
            loaded = load_study(conf, self.name, env)
        return loaded if self.scale is None else scaled(self.name, loaded, self.scale)


def sweep_keys(over: Sequence[str]) -> tuple[str, ...]:
    """The keys of such options, in their order."""
    return tuple(text.partition("=")[0].strip() for text in over)


def sweep(over: Sequence[str], seeds: int | None) -> Study:
    """The study of all combinations of some values. Its figure has a key of numbers as x, if there
    is one, lines by another key, first the algorithm, and panels by all others.

    Args:
        over: `KEY=VALUE|VALUE` each, values as `--params` reads them.
        seeds: how many, from 0; None = `DEFAULT_SEEDS`.
    """
    if not over:
        raise InputError(OVER, "(none)", f"what the sweep goes over is missing; {_FORM}")
    grid: dict[str, list[Any]] = {}
    for text, key in zip(over, sweep_keys(over), strict=True):
        values = [each.strip() for each in split_outside(text.partition("=")[2], "|")]
        if not key or not all(values):
            raise InputError(OVER, text, _FORM)
        if key == "seed":
            raise InputError(OVER, text, f"give {SEEDS}=N for the seeds 0 to N - 1")
        if key in grid:
            raise InputError(OVER, text, f"{key} is given twice; give all its values at once")
        grid[key] = [as_yaml(value) for value in values]
    title, every = f"A sweep over {' and '.join(grid)}", DEFAULT_SEEDS if seeds is None else seeds
    return Study(title=title, grid={**grid, "seed": [*range(every)]}, figure=_layout(grid))


def _layout(grid: Mapping[str, Sequence[Any]]) -> Layout:
    """A panel for each combination of what neither x nor lines show."""
    numeric = [key for key, values in grid.items() if len(values) > 1 and _numbers(values)]
    x = (*numeric, *grid)[0]
    others = sorted((key for key in grid if key != x), key=lambda key: key != "algorithm")
    lines = (*others, "algorithm" if numeric else x)[0]
    numbers = _numbers(grid[x]) if numeric else []
    log_x = bool(numbers) and 0 < _LOGARITHMIC * min(numbers) <= max(numbers)
    left, panels = [key for key in others if key != lines], []
    for values in itertools.product(*(grid[key] for key in left)):
        where = dict(zip(left, values, strict=True))
        title = ", ".join(f"{key} = {value}" for key, value in where.items())
        title = title or "accuracy in the end"
        panels.append(Panel(title=title, x=x, lines=lines, where=where, log_x=log_x))
    return Layout(columns=min(len(panels), _MOST_COLUMNS), panels=panels)


def _numbers(values: Sequence[Any]) -> list[float]:
    """Values that are numbers, or lists of one, all of them; else none."""
    plain = [each[0] if isinstance(each, list) and len(each) == 1 else each for each in values]
    numeric = [isinstance(each, int | float) and not isinstance(each, bool) for each in plain]
    return plain if all(numeric) else []


def as_yaml(text: str) -> Any:
    """The value, as `--params` reads one; what is no YAML stays text, which selects nothing."""
    try:
        return read_value(text)
    except YAMLError:
        return text


def read_study(project: Path, order: Order) -> tuple[Study, dict[str, Any]]:
    """The study that is meant, and the parameters that override all others of it: a scale's."""
    # Kedro sets up its log with this import, which a notebook has no use for.
    from kedro.framework.project import settings

    layer = order.env or settings.CONFIG_LOADER_ARGS["default_run_env"]
    study = order.study(project / settings.CONF_SOURCE, layer)
    grids.check_size(order.name, study)
    return study, {} if order.scale is None else study.scales[order.scale].parameters


def part_of(study: Study, options: Sequence[str]) -> tuple[Point, ...]:
    """The points that have, for every key given, one of the values given for it; all without keys.

    Args:
        options: `KEY=VALUE` each, of `version`, `arm` or a key that the study's grids vary; values
            select as in a figure's `where`.
    """
    keys, every = varied_keys(study), tuple(points(study))
    rows = [{VERSION: point.version, ARM: point.arm, **point.values} for point in every]
    picked: dict[str, set[int]] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(ONLY, text, f"give KEY=VALUE; keys are {among(key, keys)}")
        if key not in keys:
            raise InputError(ONLY, key, f"does not vary; keys are {among(key, keys)}")
        selected, of_key = selecting(key, as_yaml(value)), [row.get(key) for row in rows]
        rows_with = [number for number, value in enumerate(of_key) if selected(value)]
        if not rows_with:
            values = dict.fromkeys(str(value) for value in of_key if value is not None)
            raise InputError(f"{ONLY} {key}", value, f"the study's are {among(value, values)}")
        picked.setdefault(key, set()).update(rows_with)
    chosen = set(range(len(rows))).intersection(*picked.values())
    if not chosen:
        raise InputError(ONLY, ", ".join(options), "the study has no cell with all of these")
    return tuple(every[row] for row in sorted(chosen))


def check_order(project: Path, order: Order, only: Sequence[str]) -> None:
    """Refuse what `kedro study` would refuse for its words alone, of cells under the schedules that
    are tried first."""
    from kedro.framework.project import settings

    study, last = read_study(project, order)
    part_of(study, only)
    loader = settings.CONFIG_LOADER_CLASS(
        str(project / settings.CONF_SOURCE), order.env or study.env, **settings.CONFIG_LOADER_ARGS
    )
    loader.unread()
    setting = Setting(order.name, study, loader["parameters"], last, order.params)
    grids.check_keys(setting)
    for point in points(study):
        choice = grids.choice_of(study, point)
        grids.build_cell(setting, point.name, point, {} if choice is None else choice.first)
