"""What a study's file, its parameters and the command line say wrong, found before Kedro's session,
MLflow and torch are imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kedro.framework.project import settings

from m2fdp.studies.grid import Setting, check_keys, check_size, configured, place_of_choice, points
from m2fdp.studies.part import part_of
from m2fdp.studies.study import Study, load_study, scaled


def read_study(
    project: Path, name: str, scale: str | None, env: str | None
) -> tuple[Study, dict[str, Any]]:
    """The study at a scale, and the parameters that override all others of it.

    Raises:
        InputError: no such study or scale, or a file that is no study.
    """
    layer = env or settings.CONFIG_LOADER_ARGS["default_run_env"]
    study = load_study(project / settings.CONF_SOURCE, name, layer)
    last: dict[str, Any] = {}
    if scale is not None:
        study = scaled(name, study, scale)
        last = study.scales[scale].parameters
    check_size(name, study)
    return study, last


def check_order(
    project: Path,
    name: str,
    scale: str | None,
    env: str | None,
    params: Mapping[str, Any],
    only: Sequence[str],
) -> None:
    """Refuse what `kedro study` would refuse for its words alone.

    Args: see `m2fdp.studies.command.Order` and `part_of`.

    Raises:
        InputError: naming what is wrong.
    """
    study, last = read_study(project, name, scale, env)
    part_of(study, only)
    loader = settings.CONFIG_LOADER_CLASS(
        str(project / settings.CONF_SOURCE), env or study.env, **settings.CONFIG_LOADER_ARGS
    )
    setting = Setting(name, study, loader["parameters"], last, params)
    check_keys(setting)
    for point in points(study):
        if place_of_choice(study, point) is None:  # else its schedule is not known yet
            configured(setting, point.name, point, {})
