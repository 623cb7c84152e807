"""An environment for a described table: schema, tree and parameters, for a person to change."""

from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from m2fdp.core.errors import InputError
from m2fdp.core.files import replacing, shown
from m2fdp.tables.describe import EDGES, SCHEMA, Description, inline
from m2fdp.tables.frames import CATALOG, HUB

PARAMETERS = "parameters.yml"
_SCALE = "  scale: unit_norm  # each row over its own length: clipping then loses little\n"
_OF_ROWS = {"scale": _SCALE, "features": "", "norm": 0.5, "rounds": 50, "rate": 6.0}
# By channels, templates with settings of fashion_mnist and of cifar10.
_FEATURES = {1: "drawings.yml", 3: "leaves.yml"}
_OF_PICTURES = {"scale": "", "norm": 0.3, "rounds": 30, "rate": 720.0}
# With a momentum of 1/2 steps settle up to 3 over the curvature (Polyak 1964): of rows of length
# one it is at most 1/2 for softmax, and 1 for squares.
_OF_NUMBERS = {"model": "linear", "rate": 1.0, "metrics": "  metrics: [mae, rmse, r2]\n"}


def write_environment(folder: Path, file: str, described: Description, project: Path) -> list[Path]:
    """Write an environment's files; nothing is written over.

    Args:
        folder: the environment's, such as conf/patients.
        file: the table's.
        project: the project's root, from which paths in the files are told.

    Raises:
        InputError: the folder has files of that name, or can't be written to.
    """
    values: dict[str, Any] = {"model": "softmax", "metrics": "", "tree": ""} | _OF_ROWS
    if described.channels is not None:
        values |= _OF_PICTURES | {"features": _filled(_FEATURES[described.channels])}
    if described.of_numbers:
        values |= _OF_NUMBERS | {"tree": "partition:\n  scheme: iid\n"}
    if described.edges:
        values["tree"] = _filled("tree.yml", edges=_told(folder / EDGES, project))
    root = inline(file) if file.startswith((CATALOG, HUB)) else _told(Path(file), project)
    values |= {"root": root, "schema": _told(folder / SCHEMA, project)}
    texts = {PARAMETERS: _filled(PARAMETERS, **values), SCHEMA: described.schema}
    if described.edges:
        rows = pd.DataFrame(described.edges, columns=["parent", "child"])
        texts[EDGES] = rows.to_csv(index=False, lineterminator="\n")
    for name in texts:
        if (folder / name).exists():
            remedy = f"is there already; give another --env, or remove {shown(folder)}"
            raise InputError("--env", folder.name, f"{shown(folder / name)} {remedy}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with replacing(folder / name) as path:
                path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError("--env", folder.name, f"can't be written ({error.strerror})") from None
    return [folder / name for name in texts]


def _filled(template: str, **values: Any) -> str:
    text = resources.files("m2fdp.tables").joinpath("templates", template)
    return Template(text.read_text(encoding="utf-8")).substitute(values)


def _told(path: Path, project: Path) -> str:
    """A path as files of the project name it."""
    whole = path.expanduser().absolute()
    return inline(str(whole.relative_to(project) if whole.is_relative_to(project) else whole))
