"""What a study's file, its parameters and the command line say wrong, found before Kedro's session,
MLflow and torch are imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kedro.framework.project import settings

from m2fdp.core.errors import InputError, among
from m2fdp.studies.grid import (
    SEED,
    Point,
    Setting,
    build_cell,
    check_keys,
    check_size,
    first_schedule,
    points,
)
from m2fdp.studies.order import Order
from m2fdp.studies.part import part_of
from m2fdp.studies.record import record_files, recorded
from m2fdp.studies.study import Study


def read_study(project: Path, order: Order) -> tuple[Study, dict[str, Any]]:
    """The study that is meant, and the parameters that override all others of it: a scale's.

    Raises:
        InputError: as `Order.study`, or one of more runs than anyone waits for.
    """
    layer = order.env or settings.CONFIG_LOADER_ARGS["default_run_env"]
    study = order.study(project / settings.CONF_SOURCE, layer)
    check_size(order.name, study)
    return study, {} if order.scale is None else study.scales[order.scale].parameters


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
        build_cell(setting, point.name, point, first_schedule(study, point))


def check_recorded(
    project: Path, order: Order, only: Sequence[str], seeds: int | None
) -> tuple[Point, ...]:
    """The points of a study's record that are to be made again.

    Args:
        only: the part that is meant, as `part_of` reads it.
        seeds: how many seeds at most, the first ones; None = all.

    Raises:
        InputError: no such study or record, or nothing of it is meant.
    """
    check_order(project, order, only)
    study, _ = read_study(project, order)
    files = record_files(project, order.identity)
    if not files.exists:
        known = among(order.identity, recorded(project))
        valid = f"has no record in docs/results/runs; there are {known}"
        raise InputError("study", order.identity, valid)
    runs = files.read().runs
    chosen = [point for point in part_of(study, only) if point.name in runs.index]
    if not chosen:
        some = ", ".join(runs.index[:3])
        raise InputError("--only", " ".join(only) or "(all)", f"the record has runs as {some}")
    first = list(dict.fromkeys(point.values.get(SEED) for point in chosen))[:seeds]
    return tuple(point for point in chosen if point.values.get(SEED) in first)
