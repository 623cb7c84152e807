"""An environment for a described table: schema, tree and parameters, for a person to change."""

from pathlib import Path
from typing import Any

import pandas as pd

from m2fdp.core.errors import InputError
from m2fdp.core.files import replacing, shown
from m2fdp.tables.describe import EDGES, SCHEMA, Description, inline
from m2fdp.tables.frames import CATALOG, HUB

PARAMETERS = "parameters.yml"
_TREE = """\
partition:
  scheme: column  # the devices are the values of the column `client`
topology:
  edges: {edges}
  fanouts: null
  weights: samples
  trust:
    ratios: null
    untrusted: []  # servers that must not see a model without noise, by name
"""
_TEXT = """\
# Made by `m2fdp data describe`, yours to change: docs/configuration.md has every key.
dataset:
  name: table
  root: {root}
  schema: {schema}
{scale}{tree}{features}model:
  name: {model}
privacy:
  epsilon: 1.0
  clipping_norm: {norm}
training:
  rounds: {rounds}
  local_steps: 1
  local_aggregation: null
  batch_size: null
  learning_rate: {rate}
  accumulated_noise: 1.0  # shortens the steps until noise alone moves no weight by more
  server: {{rule: momentum}}
{metrics}"""
_SCALE = "  scale: unit_norm  # each row over its own length: clipping then loses little\n"
_OF_ROWS = {"scale": _SCALE, "features": "", "norm": 0.5, "rounds": 50, "rate": 6.0}
# Settings of fashion_mnist and of cifar10, by channels.
_HEAD = "features:  # what models see of a picture, docs/features.md\n"
_FEATURES = {
    1: "  map: all\n  public: drawings\n  ridge: 0.002\n  weights: invariance\n",
    3: "  map: both\n  public: photographs\n  ridge: 0.003\n",
}
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
        values |= _OF_PICTURES | {"features": _HEAD + _FEATURES[described.channels]}
    if described.of_numbers:
        values |= _OF_NUMBERS | {"tree": "partition:\n  scheme: iid\n"}
    if described.edges:
        values["tree"] = _TREE.format(edges=_told(folder / EDGES, project))
    root = inline(file) if file.startswith((CATALOG, HUB)) else _told(Path(file), project)
    texts = {
        PARAMETERS: _TEXT.format(root=root, schema=_told(folder / SCHEMA, project), **values),
        SCHEMA: described.schema,
    }
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


def _told(path: Path, project: Path) -> str:
    """A path as files of the project name it."""
    whole = path.expanduser().absolute()
    return inline(str(whole.relative_to(project) if whole.is_relative_to(project) else whole))
