"""What a table looks like, and the schema that its rows suggest, for a person to confirm."""

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from m2fdp.core.errors import InputError, among
from m2fdp.core.formatting import counted, some_of
from m2fdp.tables.encoding import numbers, texts
from m2fdp.tables.frames import files_of, folder_of, read_parts
from m2fdp.tables.pictures import FOLDER, NAME, TEST, TRAIN, are_pictures, usual_shape
from m2fdp.tables.schema import LARGEST_SIDE, MOST_CATEGORIES, nice_range
from m2fdp.tables.table import tree_of

# So few whole numbers are kinds of something rather than amounts.
_FEW = 10
_MOSTLY = 0.9  # numbers among the cells of a column of numbers
_MOST_KINDS = 50  # values of a column of texts that are categories still
_LONG = 25  # letters of a value, on average: a text
_TEXT_INPUTS = 1024
_MOST_CLASSES = 100
_CONFIRM = "  # read off the file"
_DATE = r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}"
_NAMES_PERSONS = re.compile(r"(?i:(^|[^a-z])id$|patient|person|subject|user)|[a-z]I[Dd]$")
SCHEMA, EDGES = "schema.yml", "edges.csv"
SPLIT, RECORD, PICTURES = "split", "record", "pictures"
_ROLES = ("label", "client", "group", SPLIT, RECORD)


@dataclass(frozen=True)
class Described:
    """A column of a table.

    Attributes:
        name: its name.
        kind: what it is taken for.
        read: what the schema says of it, in short.
        empty: how many cells are empty.
        distinct: how many values differ.
        entry: what stands in the schema; None = ignored.
    """

    name: str
    kind: str
    read: str
    empty: int
    distinct: int
    entry: dict[str, Any] | None


@dataclass(frozen=True, eq=False)
class Description:
    """A table, and the schema that it suggests.

    Attributes:
        n_rows: how many rows there are.
        columns: what each column is taken for.
        schema: the schema's text, with comments.
        edges: parent and child of the tree that clients and groups make; none without clients.
        counts: records by client (index) and class, or of numbers by tenth of their range
            (columns); one row without clients.
        of_numbers: whether the label is a number.
        channels: those of pictures; None = rows are none.
    """

    n_rows: int
    columns: tuple[Described, ...]
    schema: str
    edges: tuple[tuple[str, str], ...]
    counts: pd.DataFrame
    of_numbers: bool = False
    channels: int | None = None


def describe(
    file: str,
    label: str | None = None,
    client: str | None = None,
    groups: tuple[str, ...] = (),
    record: str | None = None,
) -> Description:
    """Read a table and propose its schema.

    Args:
        file: a table, or a folder of tables or pictures, as `dataset.root` takes them.
        label: the column to be learnt; None = the folders that pictures lie in.
        client: the column whose values are devices.
        groups: columns whose values are servers above them, the lowest first.
        record: the column that names persons, who may have several rows.

    Raises:
        InputError: no such file or column, or one that can't be what it is to be.
    """
    files = files_of(file)
    parts = [part for each in files.values() for part in read_parts("FILE", each)]
    frame = pd.concat(parts, ignore_index=True)
    label = label or _only_folder(file, list(frame.columns))
    named = [("--label", label), ("--client", client), *(("--group", group) for group in groups)]
    named.append(("--record", record))
    for option, name in named:
        if name is not None and name not in frame:
            raise InputError(option, name, f"is no column; valid: {among(name, frame.columns)}")
    roles = {name: option.removeprefix("--") for option, name in named if name is not None}
    if None in files and _says_split(frame):
        roles.setdefault(SPLIT, "split")
    bounds = _target_range(frame[label])
    classes = _classes(frame[label], label) if bounds is None else []
    columns = tuple(
        _role(frame[name], name, roles[name], bounds)
        if name in roles
        else _column(frame[name], name)
        for name in frame.columns
    )
    columns = tuple(each if record else _hinted(each, len(frame)) for each in columns)
    channels, pictures = None, next((each.name for each in columns if each.kind == PICTURES), None)
    if pictures is not None:
        folder = folder_of(next(iter(files.values())))
        shape = usual_shape(frame[pictures], folder, LARGEST_SIDE)
        columns = tuple(_beside(each, pictures, shape) for each in columns)
        channels = shape[2]
    if not any(column.entry for column in columns):
        raise InputError("FILE", file, f"has no column but {some_of(list(roles))} to learn from")
    for option, name in named[1:]:
        if name is not None and (empty := frame[name].isna()).any():
            row = int(empty.to_numpy().argmax())
            raise InputError(option, name, f"is empty in row {row + 1}; valid: a name in each")
    devices = texts(frame[client]) if client else pd.Series("all", index=frame.index)
    strata = texts(frame[label])
    if bounds is not None:
        edges = np.linspace(*bounds, 11).tolist()
        classes = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
        strata = pd.cut(numbers(frame[label]), edges, labels=classes, include_lowest=True)
    counts = pd.crosstab(devices, strata).reindex(columns=classes, fill_value=0)
    tree = tree_of([texts(frame[name]) for name in (client, *groups)]) if client else []
    entry = {"classes": classes} if bounds is None else {"range": list(bounds)}
    entries: dict[str, Any] = {
        "label": {"column": label} | entry,
        "client": client and {"column": client},
        "groups": [{"column": group} for group in groups],
        RECORD: record and {"column": record, "rows": int(nice_range(0, _most(frame[record]))[1])},
    }
    schema = _schema_text(file, entries, columns)
    about = columns, schema, tuple(tree), counts, bounds is not None, channels
    return Description(len(frame), *about)


def _only_folder(file: str, columns: list[str]) -> str:
    """The one level of folders that pictures lie in: their label, if nobody names another."""
    folders = [name for name in columns if FOLDER.fullmatch(name)]
    if len(folders) == 1:
        return folders[0]
    if columns == [NAME]:
        raise InputError("FILE", file, "has pictures in no folders that name their classes")
    valid = some_of(folders or columns)
    raise InputError("--label", None, f"which column is to be learnt? valid: {valid}")


def _says_split(frame: pd.DataFrame) -> bool:
    """Whether a column of that name says train and test."""
    said = set(texts(frame[SPLIT]).str.lower()) if SPLIT in frame else set()
    return said <= {*TRAIN, *TEST} and not said.isdisjoint(TRAIN) and not said.isdisjoint(TEST)


def _beside(column: Described, pictures: str, shape: tuple[int, int, int]) -> Described:
    """A column of a table of pictures: theirs, or one that no model is given beside them."""
    if column.name == pictures:
        height, width, channels = shape
        read = f"{height} x {width} pixels, {'grey' if channels == 1 else 'coloured'}"
        return replace(column, read=read, entry={"image": list(shape)})
    if column.entry is None:
        return column
    return replace(column, read="ignored: pictures stand alone", entry=None)


def _role(column: pd.Series, name: str, role: str, bounds: tuple[float, float] | None) -> Described:
    distinct, empty = texts(column).nunique(), int(column.isna().sum())
    read = counted(distinct, "value")
    if role == RECORD:
        read = f"{counted(distinct, 'person')}, at most {counted(_most(column), 'row')} each"
    if role == "label" and bounds is not None:
        read = "{:g} to {:g}".format(*bounds)
    return Described(name, role, read, empty, distinct, None)


def _target_range(column: pd.Series) -> tuple[float, float] | None:
    """The range of a label that is a number; None where its values are classes."""
    values = numbers(column)
    told = np.isfinite(values)
    if values.nunique() <= _FEW or told.mean() <= _MOSTLY:
        return None
    if not told.all():
        row = int((~told).to_numpy().argmax())
        problem = f"holds numbers, and {str(column.iloc[row])[:40]!r} in row {row + 1}"
        raise InputError("--label", str(column.name), f"{problem}; remove such rows")
    return nice_range(float(values.min()), float(values.max()))


def _most(column: pd.Series) -> int:
    """How many rows there are at the most of a value."""
    return int(texts(column).value_counts().max())


def _hinted(column: Described, n_rows: int) -> Described:
    """The column, with a hint where its values may name persons of several rows."""
    repeats = n_rows / 2 < column.distinct < n_rows - column.empty
    if not repeats or not _NAMES_PERSONS.search(column.name):
        return column
    hint = f"--record {column.name} if it names persons, for some values repeat"
    return replace(column, read=f"{column.read}; {hint}")


def _classes(column: pd.Series, label: str) -> list[str]:
    values = texts(column)
    if values.isna().any():
        row = int(values.isna().to_numpy().argmax())
        raise InputError("--label", label, f"is empty in row {row + 1}; remove such rows")
    classes = sorted(values.unique(), key=_in_order)
    if not 2 <= len(classes) <= _MOST_CLASSES:
        problem = f"has {counted(len(classes), 'distinct value')}"
        raise InputError("--label", label, f"{problem}; valid: 2 to {_MOST_CLASSES} classes")
    return classes


def _in_order(text: str) -> tuple[bool, float, str]:
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def _column(column: pd.Series, name: str) -> Described:
    """What a column is taken for, by its cells."""
    empty = int(column.isna().sum())
    if are_pictures(column):
        return Described(name, PICTURES, "", empty, len(column), {})
    spelled = texts(column)
    known = spelled.dropna()
    distinct = int(known.nunique())

    def described(kind: str, read: str, entry: dict[str, Any] | None = None) -> Described:
        if entry is not None and empty:
            entry.setdefault("missing", [])
        return Described(name, kind, read, empty, distinct, entry)

    def categories() -> Described:
        kinds = sorted(known.unique(), key=_in_order)
        return described("categories", some_of(kinds), {"categories": kinds})

    if distinct < 2:
        return described("constant", "ignored: it says nothing")
    if known.str.fullmatch(_DATE).mean() > 0.9 or pd.api.types.is_datetime64_any_dtype(column):
        return described("date", "ignored: make a number of it, such as days or an age")
    values = numbers(column)[column.notna()].replace([np.inf, -np.inf], np.nan)
    if values.notna().mean() > _MOSTLY:
        listed, told = sorted(set(known[values.isna()])), values.dropna()
        whole = bool((told % 1 == 0).all())
        if whole and distinct == len(column) and told.is_monotonic_increasing:
            return described("row number", "ignored: it is one for each row")
        if whole and distinct <= _FEW and not listed:
            return categories()
        low, high = nice_range(float(told.min()), float(told.max()))
        entry = {"range": [low, high]} | ({"missing": listed[:_FEW]} if listed else {})
        unknown = f"; unknown: {some_of(listed[:_FEW])}" if listed else ""
        return described("numbers", f"{low:g} to {high:g}{unknown}", entry)
    if distinct <= _MOST_KINDS:
        return categories()
    if known.str.len().mean() >= _LONG:
        return described("text", f"hashed to {_TEXT_INPUTS} inputs", {"text": _TEXT_INPUTS})
    if distinct == len(known):
        return described("names", "ignored: each row has its own")
    if distinct <= MOST_CATEGORIES // 2:
        return categories()
    many = f"ignored: {distinct:,} values; group them, or `text: {_TEXT_INPUTS}` hashes them"
    return described("many names", many)


def _schema_text(file: str, entries: dict[str, Any], columns: tuple[Described, ...]) -> str:
    """The schema as people read it: a line a column, and a mark on what the rows have suggested."""
    doubt = {"confirmed": False}
    lines = [
        f"# What everybody may know of {Path(file).name} before seeing a row. Epsilon covers rows,",
        "# not this file: what was read off the rows may tell of them. Confirm each entry from",
        "# public knowledge and remove its `confirmed: false`; until then runs are conditional.",
    ]
    for key, entry in ((key, entry) for key, entry in entries.items() if entry):
        doubted = [each | doubt for each in entry] if isinstance(entry, list) else entry | doubt
        lines.append(f"{key}: {inline(doubted)}{_CONFIRM}")
    if any(column.kind == SPLIT for column in columns):
        lines.append(f"split: {SPLIT}")
    ignored = [each.name for each in columns if each.entry is None and each.kind not in _ROLES]
    if ignored:
        lines.append(f"ignore: {inline(ignored)}")
    lines.append("columns:")
    lines += [
        f"  {inline(column.name)}: {inline(column.entry | doubt)}{_CONFIRM}"
        for column in columns
        if column.entry is not None
    ]
    return "\n".join([*lines, ""])


def inline(value: Any) -> str:
    """A value as YAML writes it within a line."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6
    )
    return text.removesuffix("\n").removesuffix("\n...")
