"""Rows of a table as inputs of a model, by its schema alone: no row shapes what another becomes.

A number x in [low, high] becomes 2 (x - low) / (high - low) - 1, with one more input for "unknown".
One of k categories becomes k + 1 inputs, one of them 1; the last stands for every other value. The
words and letters of a text are hashed to a fixed number of inputs. The last input is always one, in
the place of a bias.

Means, deviations and vocabularies of the rows never come in: they would be a release.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from m2fdp.core.errors import InputError, did_you_mean
from m2fdp.core.formatting import counted, some_of
from m2fdp.sources.texts import hashed
from m2fdp.tables.pictures import decoded
from m2fdp.tables.schema import Column, Schema, text_of

# Kinds of faults, and what would be valid. Of the last two nobody is refused.
NO_NUMBER = "is no number"
EMPTY = "is empty"
INFINITE = "is not finite"
NO_CLASS = "is in no class"
NO_NAME = "names nobody"
NO_PICTURE = "is no picture that can be opened"
NO_TARGET = "is no number to learn"
OUTSIDE = "is outside the range"
OTHER = "is in no category"
_VALID = {
    NO_NUMBER: "a number, or a value that `missing` lists",
    EMPTY: "a value; `missing: []` in the schema lets cells be empty",
    INFINITE: "a finite number",
    NO_CLASS: "a value that `classes` lists",
    NO_NAME: "a name in each row",
    NO_PICTURE: "a file, from the table's folder on",
    NO_TARGET: "a finite number in each row",
    OUTSIDE: "a number in the range; on_violation: clamp puts others on its border",
}
_MOST_SAID, _MOST_SHOWN = 3, 40  # faults in one line, letters of a cell
_SAID = {OUTSIDE: "were put on the border of", OTHER: "count as other in"}


@dataclass(frozen=True)
class Fault:
    """What is wrong with some cells of a column.

    Attributes:
        column: its name.
        kind: one of the kinds above.
        rows: how many rows.
        first: number of the first of them, from 0.
        value: what stands there.
    """

    column: str
    kind: str
    rows: int
    first: int
    value: str

    def sentence(self, where: str) -> str:
        """The fault in one line.

        Args:
            where: the first row's place in the file, in words.
        """
        cell = f"{self.value!r} " if self.kind != EMPTY else ""
        return (
            f"{self.column}: {cell}{self.kind}, {where}, in all {counted(self.rows, 'row')}; "
            f"valid: {_VALID[self.kind]}"
        )

    @property
    def note(self) -> str:
        """What became of the cells, where nobody is refused."""
        return f"{counted(self.rows, 'row')} {_SAID[self.kind]} the column {self.column}"


@dataclass(frozen=True, eq=False)
class Encoded:
    """Some rows as a model takes them.

    Attributes:
        inputs: (n, H, W, C), float32, and uint8 where rows are pictures.
        labels: int64 (n,), -1 where a row has no class; of numbers float32 (n,), in [-1, 1].
        named: what the client, group, split and record columns say, by column: (n,) texts.
        faults: all faults, one for each column and kind.
    """

    inputs: np.ndarray
    labels: np.ndarray
    named: dict[str, np.ndarray]
    faults: list[Fault]


def encode(
    frame: pd.DataFrame, schema: Schema, folder: Path = Path(), store: Path | None = None
) -> Encoded:
    """The rows of a table by its schema; `lacking` has found nothing.

    Args:
        folder: where files lie that cells name.
        store: the folder that keeps decoded pictures; None = nowhere.
    """
    inputs, faults = inputs_of(frame, schema, folder, store)
    column = schema.label.column
    if schema.label.range is None:
        labels = _labels(frame[column], schema)
        faults += noted(frame[column], NO_CLASS, labels < 0)
    else:
        values = numbers(frame[column]).to_numpy()
        scaled, outside = _scaled(values, schema.label.range)
        labels = scaled.astype(np.float32)
        faults += noted(frame[column], NO_TARGET, ~np.isfinite(values))
        faults += noted(frame[column], OUTSIDE, outside)
    named = {}
    for name, role in schema.roles.items():
        if role in ("client", "group", "split", "record"):
            named[name] = texts(frame[name]).to_numpy(dtype=object)
            faults += noted(frame[name], NO_NAME, frame[name].isna().to_numpy())
    return Encoded(inputs, labels, named, faults)


def inputs_of(
    frame: pd.DataFrame, schema: Schema, folder: Path = Path(), store: Path | None = None
) -> tuple[np.ndarray, list[Fault]]:
    """`Encoded.inputs`, and what is wrong with the cells; see `encode`."""
    ((only, column), *_) = schema.columns.items()
    if column.image is not None:
        pixels, closed = decoded(frame[only], column.image, folder, store)
        return pixels, noted(frame[only], NO_PICTURE, closed)
    inputs = np.zeros((len(frame), schema.shape[1]), dtype=np.float32)
    inputs[:, -1] = 1
    faults, start = [], 0
    for name, column in schema.columns.items():
        end = start + column.n_inputs
        faults += _fill(inputs[:, start:end], frame[name], column)
        start = end
    return inputs[:, None, :, None], faults


def noted(cells: pd.Series, kind: str, wrong: np.ndarray) -> list[Fault]:
    """A fault of the cells that are wrong (n,), if any is."""
    if not wrong.any():
        return []
    first = int(wrong.argmax())
    place, value = int(cells.index[first]), str(cells.iloc[first])[:_MOST_SHOWN]
    return [Fault(str(cells.name), kind, int(wrong.sum()), place, value)]


def texts(column: pd.Series) -> pd.Series:
    """Cells as schemas name values; empty ones stay empty."""
    # Few values repeat many times: each is spelled once. The last place is that of empty cells.
    places, values = pd.factorize(column)
    spelled = np.array([*map(text_of, values), None], dtype=object)
    return pd.Series(spelled[places], index=column.index, name=column.name, dtype=object)


def numbers(column: pd.Series) -> pd.Series:
    """Cells as float64, NaN where none is; a comma may stand for the decimal point."""
    if pd.api.types.is_numeric_dtype(column):
        return column.astype(np.float64)
    spelled = column.astype("string").str.strip()
    spelled = spelled.str.replace(r"^([-+]?[0-9]+),([0-9]+)$", r"\1.\2", regex=True)
    return pd.to_numeric(spelled, errors="coerce").astype(np.float64)


def lacking(columns: Iterable[object], schema: Schema, labelled: bool = True) -> str | None:
    """What a table with these columns lacks of a schema or has beyond it, in words."""
    there = [str(name).strip() for name in columns]
    needed = [*schema.columns, *(schema.roles if labelled else ())]
    absent = [name for name in needed if name not in there and name not in schema.ignore]
    if absent:
        meant = did_you_mean(absent[0], there)
        return f"lacks the column {absent[0]} of the schema; it has {some_of(there)}{meant}"
    more = [name for name in there if name not in schema.columns and name not in schema.roles]
    if more and labelled:
        return f"has the column {more[0]}, which the schema does not name; add it, or to `ignore`"
    return None


def added(faults: Iterable[Fault]) -> list[Fault]:
    """Faults of several parts of a table, those of one column and kind as one."""
    found: dict[tuple[str, str], Fault] = {}
    for fault in faults:
        place = fault.column, fault.kind
        first = found.get(place)
        found[place] = replace(first, rows=first.rows + fault.rows) if first else fault
    return list(found.values())


def check(
    faults: Iterable[Fault],
    schema: Schema,
    refuse: Callable[[str], InputError],
    where: Callable[[int], str],
) -> None:
    """Refuse cells for which nothing is trained.

    Args:
        refuse: makes an error of what is wrong.
        where: a row's place in words, by its number.
    """
    told = {OTHER, OUTSIDE} if schema.on_violation == "clamp" else {OTHER}
    if wrong := [fault for fault in faults if fault.kind not in told]:
        lines = [fault.sentence(where(fault.first)) for fault in wrong[:_MOST_SAID]]
        lines += [f"and {len(wrong) - _MOST_SAID} more"] * (len(wrong) > _MOST_SAID)
        raise refuse("; ".join(lines))


def _labels(column: pd.Series, schema: Schema) -> np.ndarray:
    of_classes = enumerate(schema.label.values.values())
    number = {value: place for place, values in of_classes for value in values}
    return texts(column).map(number).fillna(-1).to_numpy(dtype=np.int64)


def _scaled(values: np.ndarray, bounds: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (n,) as -1 to 1 from bound to bound, and which finite ones lie outside."""
    low, high = bounds
    outside = np.isfinite(values) & ((values < low) | (values > high))
    return 2 * (np.clip(values, low, high) - low) / (high - low) - 1, outside


def _fill(into: np.ndarray, cells: pd.Series, column: Column) -> list[Fault]:
    """Write the inputs (n, column.n_inputs) that some cells become; what is wrong with them."""
    unknown = cells.isna().to_numpy()
    if column.missing:
        unknown = unknown | texts(cells).isin(column.missing).to_numpy()
    faults = noted(cells, EMPTY, unknown) if column.missing is None else []
    if column.text is not None:
        into[:] = hashed(texts(cells).where(~unknown, "").astype(str).tolist(), column.text)
    elif column.range is not None:
        values = numbers(cells).to_numpy()
        is_number = ~np.isnan(values)
        faults += noted(cells, NO_NUMBER, ~is_number & ~unknown)
        faults += noted(cells, INFINITE, np.isinf(values) & ~unknown)
        known = is_number & ~unknown & np.isfinite(values)
        scaled, outside = _scaled(values, column.range)
        faults += noted(cells, OUTSIDE, known & outside)
        into[:, 0] = np.where(known, scaled, 0)
        if column.missing is not None:
            into[:, 1] = ~known
    else:
        place = {value: number for number, value in enumerate(column.categories or ())}
        other = len(place)
        places = texts(cells).map(place).fillna(other).to_numpy(dtype=np.int64, copy=True)
        places[unknown] = other
        faults += noted(cells, OTHER, (places == other) & ~unknown)
        into[np.arange(len(places)), places] = 1
    return faults
