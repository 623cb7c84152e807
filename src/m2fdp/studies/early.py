"""What a study's file, its parameters and the command line say wrong, found before Kedro's session,
MLflow and torch are imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kedro.framework.project import settings

from m2fdp.claims.frames import ARM, VERSION, selecting
from m2fdp.core.errors import InputError, among
from m2fdp.studies.grid import (
    Point,
    Setting,
    build_cell,
    check_keys,
    check_size,
    choice_of,
    points,
    varied_keys,
)
from m2fdp.studies.order import Order, as_yaml
from m2fdp.studies.study import Study

ONLY = "--only"


def read_study(project: Path, order: Order) -> tuple[Study, dict[str, Any]]:
    """The study that is meant, and the parameters that override all others of it: a scale's.

    Raises:
        InputError: as `Order.study`, or one of more runs than anyone waits for.
    """
    layer = order.env or settings.CONFIG_LOADER_ARGS["default_run_env"]
    study = order.study(project / settings.CONF_SOURCE, layer)
    check_size(order.name, study)
    return study, {} if order.scale is None else study.scales[order.scale].parameters


def part_of(study: Study, options: Sequence[str]) -> tuple[Point, ...]:
    """The points that have, for every key given, one of the values given for it.

    Args:
        options: `KEY=VALUE` each, of `version`, `arm` or a key that the study's grids vary; values
            select as in a figure's `where`. All points where it is empty.

    Raises:
        InputError: not of that form, a key or value that the study has not, or no point at all.
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
    """Refuse what `kedro study` would refuse for its words alone: of its cells, as they are under
    the schedules that are tried first.

    Args:
        only: the part to run, as `part_of` reads it.

    Raises:
        InputError: naming what is wrong.
    """
    study, last = read_study(project, order)
    part_of(study, only)
    loader = settings.CONFIG_LOADER_CLASS(
        str(project / settings.CONF_SOURCE), order.env or study.env, **settings.CONFIG_LOADER_ARGS
    )
    loader.unread()
    setting = Setting(order.name, study, loader["parameters"], last, order.params)
    check_keys(setting)
    for point in points(study):
        choice = choice_of(study, point)
        build_cell(setting, point.name, point, {} if choice is None else choice.first)
