"""What a study's file, its parameters and the command line say wrong, found before Kedro's session,
MLflow and torch are imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kedro.framework.project import settings

from m2fdp.studies.grid import Setting, check_keys, check_size, configured, place_of_choice, points
from m2fdp.studies.order import Order
from m2fdp.studies.part import part_of
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
    """Refuse what `kedro study` would refuse for its words alone.

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
    setting = Setting(order.name, study, loader["parameters"], last, order.params)
    check_keys(setting)
    for point in points(study):
        if place_of_choice(study, point) is None:  # else its schedule is not known yet
            configured(setting, point.name, point, {})
