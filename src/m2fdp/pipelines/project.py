"""Which project a folder is in."""

from __future__ import annotations

from pathlib import Path

from kedro.utils import find_kedro_project

from m2fdp.core.errors import InputError


def project_of(folder: Path) -> Path:
    """The project that a folder, such as a notebook's, is in.

    Raises:
        InputError: it is in none; MLflow would begin a store of its own there.
    """
    project = find_kedro_project(folder)
    if project is None:
        remedy = "is in no project of m2fdp; start from the project's folder or one below it"
        raise InputError("folder", str(folder), remedy)
    return project
