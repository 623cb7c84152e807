"""An environment for a described table: schema, tree and parameters, for a person to change."""

from pathlib import Path

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
{learning}"""
_OF_ROWS = """\
  scale: unit_norm  # each row over its own length: clipping then loses little
{tree}model:
  name: {model}
privacy:
  epsilon: 1.0
  clipping_norm: 0.5
training:
  rounds: 50
  local_steps: 1
  local_aggregation: null
  batch_size: null
  learning_rate: {rate}
  accumulated_noise: 1.0  # shortens the steps until noise alone moves no weight by more
  server: {{rule: momentum}}
{metrics}"""
# Model, steps and metrics of classes and of numbers. With a momentum of 1/2 steps settle up to 3
# over the curvature (Polyak 1964): on rows of length one at most 1/2 for softmax, 1 for squares.
_OF_CLASSES = {"model": "softmax", "rate": "6.0", "of_pictures": "720.0", "metrics": ""}
_OF_NUMBERS = {"model": "linear", "rate": "1.0", "of_pictures": "1.0"}
_OF_NUMBERS |= {"metrics": "  metrics: [mae, rmse, r2]\n"}
# The settings of fashion_mnist and of cifar10, by channels.
_FEATURES = {
    1: "  map: all\n  public: drawings\n  ridge: 0.002\n  weights: invariance\n",
    3: "  map: both\n  public: photographs\n  ridge: 0.003\n",
}
_OF_PICTURES = """\
{tree}features:  # docs/features.md; `map: pixels` gives models the pixels
{features}model:
  name: {model}
privacy:
  epsilon: 1.0
  clipping_norm: 0.3
training:
  rounds: 30
  local_steps: 1
  local_aggregation: null
  batch_size: null
  learning_rate: {of_pictures}
  accumulated_noise: 1.0  # shortens the steps until noise alone moves no weight by more
  server: {{rule: momentum}}
  evaluate_every: 5
{metrics}"""


def write_environment(folder: Path, file: str, described: Description, project: Path) -> list[Path]:
    """Write an environment's files; nothing is written over.

    Args:
        folder: the environment's, such as conf/patients.
        file: the table's.
        project: the project's root, from which paths in the files are told.

    Raises:
        InputError: the folder has files of that name, or can't be written to.
    """
    kind, tree = _OF_CLASSES, ""
    if described.of_numbers:
        kind, tree = _OF_NUMBERS, "partition:\n  scheme: iid\n"
    if described.edges:
        tree = _TREE.format(edges=_told(folder / EDGES, project))
    learning = _OF_ROWS.format(tree=tree, **kind)
    if described.channels is not None:
        features = _FEATURES[described.channels]
        learning = _OF_PICTURES.format(tree=tree, features=features, **kind)
    root = inline(file) if file.startswith((CATALOG, HUB)) else _told(Path(file), project)
    texts = {
        PARAMETERS: _TEXT.format(
            root=root, schema=_told(folder / SCHEMA, project), learning=learning
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
