"""A table's schema as rules that its rows must keep, for Great Expectations to check."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.core.config import DatasetConfig
from m2fdp.tables.encoding import lacking, numbers, texts
from m2fdp.tables.frames import files_of, read_parts
from m2fdp.tables.schema import Schema, read_schema

TABLE = "table"  # what it is called on the page
_PARTS = 4  # of a file, a million rows; all are checked when they are read to be learnt from
_EMPTY = "(empty)"
Rule = tuple[str, str, dict[str, Any], None]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to be checked.

    Attributes:
        table: the rows as they are compared: cells that a schema calls numbers are numbers,
            others texts, and those that mean "unknown" are empty.
        rules: the schema's rules, for `m2fdp.expectations.rules.check`; none without a table.
        name: the table's.
    """

    table: pd.DataFrame
    rules: list[Rule]
    name: str = ""


def expected(config: DatasetConfig) -> Rows:
    """The first million rows of a user's table and the rules of its schema. Of other data sets, and
    of a table that lacks columns, which is refused where it is read, nothing.

    Raises:
        InputError: a file is missing or no table.
    """
    schema_file = vars(config)["schema"]
    if config.name != TABLE or schema_file is None:
        return Rows(pd.DataFrame(), [])
    schema = read_schema(schema_file)
    parts: list[pd.DataFrame] = []
    for file in files_of(config.root).values():
        parts += islice(read_parts("dataset.root", file), _PARTS)
    frame = pd.concat(parts, ignore_index=True)
    if lacking(frame.columns, schema):
        return Rows(pd.DataFrame(), [])
    return rows_of(frame, schema, config.root)


def rows_of(frame: pd.DataFrame, schema: Schema, name: str) -> Rows:
    """The rows of a table that has the schema's columns, and its rules."""
    table: dict[str, pd.Series] = {}
    rules: list[Rule] = []

    def expect(rule: str, kind: str, column: str, **options: Any) -> None:
        rules.append((f"{column}: {rule}", kind, {"column": column, **options}, None))

    def expect_numbers(column: str, cells: pd.Series, bounds: tuple[float, float]) -> None:
        table[column] = numbers(cells).replace([np.inf, -np.inf], np.nan)
        strange = f"{column} (no finite number)"
        table[strange] = cells.where(table[column].isna(), None)
        rule = f"{column}: every cell is a finite number or unknown"
        rules.append((rule, "ValuesToBeNull", {"column": strange}, None))
        (low, high), clamps = bounds, schema.on_violation == "clamp"
        rule = f"from {low:g} to {high:g}" + "; others are put on its border" * clamps
        mostly = {"mostly": 0.0} if clamps else {}
        expect(rule, "ValuesToBeBetween", column, min_value=low, max_value=high, **mostly)

    label = schema.label.column
    if schema.label.range is not None:
        expect_numbers(label, texts(frame[label]).fillna(_EMPTY), schema.label.range)
    else:
        table[label] = texts(frame[label])
        expect("every row has a label", "ValuesToNotBeNull", label)
        values = [value for of_class in schema.label.values.values() for value in of_class]
        expect("every label is in a class", "ValuesToBeInSet", label, value_set=values)
    for column, role in schema.roles.items():
        if role in ("client", "group", "split", "record"):
            table[column] = texts(frame[column])
            expect(f"every row names its {role}", "ValuesToNotBeNull", column)
    if schema.record and schema.client:
        who = table[schema.record.column]
        strayed = f"{schema.record.column} (clients)"
        table[strayed] = table[schema.client.column].groupby(who).transform("nunique")
        expect("each is of one client", "ValuesToBeBetween", strayed, max_value=1)
    for column, entry in schema.columns.items():
        if entry.image is not None:
            continue  # whether a picture opens is found where it is decoded
        spelled = texts(frame[column])
        known = spelled.where(~spelled.isin(entry.missing or []), None)
        if entry.range is not None:
            cells = known if entry.missing is not None else known.fillna(_EMPTY)
            expect_numbers(column, cells, entry.range)
            continue
        table[column] = known
        if entry.missing is None:
            expect("no cell is empty", "ValuesToNotBeNull", column)
        if entry.categories is not None:
            rule, least = "one of the categories; others count as other", {"mostly": 0.0}
            expect(rule, "ValuesToBeInSet", column, value_set=entry.categories, **least)
    return Rows(pd.DataFrame(table), rules, name)
