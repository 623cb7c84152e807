"""Trees from edges, as a user's file lists them."""

import csv
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from m2fdp.core.errors import InputError
from m2fdp.core.topology.tree import Tree
from m2fdp.given.yaml_files import read_yaml


def read_tree(edges: str | list[list[str]]) -> Tree:
    """The tree of the edges in a file, or of the edges; see `edges_of` and `tree_from_edges`."""
    return tree_from_edges(edges_of(edges))


def edges_of(edges: str | list[list[str]]) -> list[tuple[str, str]]:
    """(parent, child) pairs that a configuration gives, or that stand in the file it names."""
    if isinstance(edges, list):
        return [(parent, child) for parent, child in edges]
    return read_edges(edges)


def read_edges(file: str | Path) -> list[tuple[str, str]]:
    """(parent, child) pairs from a CSV file with those columns, or a YAML list of pairs.

    Raises:
        InputError: the file is missing, of another type or not UTF-8, or a row is no pair.
    """
    path, refuse = Path(file), partial(InputError, "topology.edges", str(file))
    if not path.is_file():
        valid = "a .csv with the columns parent,child or a .yml list of [parent, child]"
        raise refuse(f"no such file; give {valid}")
    if path.suffix.lower() == ".csv":
        rows = _csv_rows(path)
    elif path.suffix.lower() in {".yml", ".yaml"}:
        try:
            rows = read_yaml(path, names=True)
        except InputError as error:
            raise refuse(str(error)) from None
    else:
        raise refuse("must end in .csv, .yml or .yaml")
    if not isinstance(rows, list) or not rows:
        raise refuse("holds no edges")
    return [_edge(row, path) for row in rows]


def _csv_rows(path: Path) -> list[list[str | None]]:
    """The columns parent and child; spaces about names and lines without any are left out."""
    refuse = partial(InputError, "topology.edges", str(path))
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.reader(file, strict=True))
    except UnicodeDecodeError as error:
        raise refuse(f"byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except csv.Error as error:
        raise refuse(f"is no CSV: {error}") from None
    rows = [[cell.strip() for cell in line] for line in lines if any(map(str.strip, line))]
    header = rows[0] if rows else []
    if not {"parent", "child"} <= set(header):
        raise refuse("needs the columns parent,child, separated by a comma")
    columns = [header.index(name) for name in ("parent", "child")]
    return [[row[i] if i < len(row) else None for i in columns] for row in rows[1:]]


def _edge(row: object, path: Path) -> tuple[str, str]:
    """Names are texts, also where they look like numbers: 007 is not 7."""
    if isinstance(row, (list, tuple)) and len(row) == 2:
        names = [name.strip() for name in row if isinstance(name, str)]
        if len(names) == 2 and all(name.isprintable() and name for name in names):
            return names[0], names[1]
    raise InputError("topology.edges", row, f"in {path} is no pair of parent and child")


def tree_from_edges(edges: Sequence[tuple[str, str]]) -> Tree:
    """The tree of (parent, child) pairs, whatever their order: siblings are in that of their names.

    Raises:
        InputError: an edge twice, two parents of a node, several roots, a cycle, or devices
            (nodes without children) at different layers.
    """
    refuse = partial(InputError, "topology.edges")
    children: dict[str, list[str]] = {}
    parent_of: dict[str, str] = {}
    for parent, child in edges:
        if child == "-1":  # in a manifest's column `device`
            raise refuse(child, "stands for the cloud in manifests; valid: another name")
        if parent_of.get(child) == parent:
            raise refuse(f"{parent},{child}", "is listed twice; keep one of the two")
        if child in parent_of:
            both = f"{parent_of[child]} and {parent}"
            problem = f"has two edges from above, {both}; every node has exactly one parent"
            raise refuse(child, problem)
        parent_of[child] = parent
        children.setdefault(parent, []).append(child)
    roots = [node for node in children if node not in parent_of]
    if not roots:
        problem = "is on a cycle; the edges must form one tree with one root, the cloud"
        raise refuse(_on_a_cycle(parent_of), problem)
    if len(roots) > 1:
        raise refuse(roots, "the edges must form one tree with one root, the cloud")
    # By numbers who is who would depend on the order of the rows, and nobody would be told.
    for siblings in children.values():
        siblings.sort(key=by_number)
    layers = [roots]
    parents: list[np.ndarray] = []
    while any(node in children for node in layers[-1]):
        childless = [node for node in layers[-1] if node not in children]
        if childless:
            problem = f"ends at layer {len(layers) - 1} while other branches go deeper"
            raise refuse(childless[0], f"{problem}; all devices must be at one layer")
        fanouts = [len(children[node]) for node in layers[-1]]
        parents.append(np.repeat(np.arange(len(fanouts)), fanouts))
        layers.append([child for node in layers[-1] for child in children[node]])
    reached = {node for layer in layers for node in layer}
    unreached = {child: parent for child, parent in parent_of.items() if child not in reached}
    if unreached:
        raise refuse(_on_a_cycle(unreached), "is on a cycle; the edges must form a tree")
    return Tree(tuple(parents), tuple(tuple(layer) for layer in layers))


def by_number(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    """A name's place: numbers in it count by their value, `device-2` before `device-10`."""
    parts = re.findall(r"0*([0-9]+)|([^0-9]+)", name)
    return [(text != "", len(number), number or text) for number, text in parts], name


def _on_a_cycle(parent_of: dict[str, str]) -> str:
    """A node from which the way up comes back to it, where no way up ends."""
    node, passed = min(parent_of), set()
    while node not in passed:
        passed.add(node)
        node = parent_of[node]
    return node
