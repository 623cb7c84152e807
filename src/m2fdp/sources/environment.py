"""An environment for a described table: schema, tree and parameters, for a person to change."""

from pathlib import Path

import pandas as pd

from m2fdp.core.errors import InputError
from m2fdp.core.files import replacing, shown
from m2fdp.sources.describe import EDGES, SCHEMA, Description, inline

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
  scale: unit_norm  # each row over its own length: clipping then loses little
{tree}model:
  name: {model}
privacy:
  epsilon: 1.0
  clipping_norm: 0.5
training:
  rounds: 20
  local_steps: 1
  local_aggregation: null
  batch_size: null
  learning_rate: {rate}
  accumulated_noise: 1.0  # shortens the steps until noise alone moves no weight by more
{metrics}"""
# Model, steps and metrics of classes and of numbers, whose loss bears no longer steps than 2.
_OF_CLASSES = {"tree": "", "model": "softmax", "rate": "40.0", "metrics": ""}
_OF_NUMBERS = {"tree": "partition:\n  scheme: iid\n", "model": "linear", "rate": "1.0"}
_OF_NUMBERS |= {"metrics": "  metrics: [mae, rmse, r2]\n"}


def write_environment(folder: Path, file: str, described: Description, project: Path) -> list[Path]:
    """Write an environment's files; nothing is written over.

    Args:
        folder: the environment's, such as conf/patients.
        file: the table's.
        project: the project's root, from which paths in the files are told.

    Raises:
        InputError: the folder has files of that name, or can't be written to.
    """
    kind = _OF_NUMBERS if described.of_numbers else _OF_CLASSES
    if described.edges:
        kind = kind | {"tree": _TREE.format(edges=_told(folder / EDGES, project))}
    texts = {
        PARAMETERS: _TEXT.format(
            root=_told(Path(file), project), schema=_told(folder / SCHEMA, project), **kind
        ),
        SCHEMA: described.schema,
    }
    if described.edges:
        rows = pd.DataFrame(described.edges, columns=["parent", "child"])
        texts[EDGES] = rows.to_csv(index=False, lineterminator="\n")
    for name in texts:
        if (folder / name).exists():
            remedy = "is there already; give another --env, or remove it"
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
