"""Edges of a user's tree, as a file lists them."""

import csv
from functools import partial
from pathlib import Path

from m2fdp.core.errors import InputError
from m2fdp.given.yaml_files import read_yaml


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
