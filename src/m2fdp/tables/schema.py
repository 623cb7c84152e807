"""What everybody may know of a table before seeing a record: its schema, a file that a user writes
or confirms.

Bounds, categories, classes and clients shape what a model is given. Were they read off the
records, epsilon would not cover what they tell of a record. So they stand in a file, and an entry
that `describe` has read off the records says so: `confirmed: false`.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from m2fdp.core.blocks import Block, Count, Number
from m2fdp.core.config import DatasetConfig
from m2fdp.core.errors import InputError
from m2fdp.core.files import shown
from m2fdp.given.loading import parse_block
from m2fdp.given.yaml_files import read_block

MOST_CATEGORIES = 1_000
LARGEST_SIDE = 128  # of a picture
BESIDE = 2  # numbers of a bag's line beside the row's: there is a row, and its label
_WHOLE = re.compile(r"[-+]?[0-9]+\.0+")


def text_of(value: Any) -> str:
    """A value as schemas and tables name it: 1.0 is 1, and true is true however it is written."""
    text = str(value).strip()
    if _WHOLE.fullmatch(text):
        return text.partition(".")[0]
    return text.lower() if text.lower() in ("true", "false") else text


Value = Annotated[str, BeforeValidator(text_of)]


def _distinct(values: list[str]) -> list[str]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value} stands there twice; valid: each once")
    return values


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    if not bounds[0] < bounds[1]:
        raise ValueError("valid: a range [low, high] with low < high")
    return bounds


Side = Annotated[int, Number, Field(ge=1, le=LARGEST_SIDE)]
Bound = Annotated[float, Number, Field(ge=-1e300, le=1e300)]  # so that widths are finite
Range = Annotated[tuple[Bound, Bound], AfterValidator(_ordered)]
Values = Annotated[list[Value], Field(max_length=MOST_CATEGORIES), AfterValidator(_distinct)]


def _column_alone(value: Any) -> Any:
    """A column's name stands for an entry that has nothing else."""
    return {"column": value} if isinstance(value, str | int | float) else value


class Entry(Block):
    """A statement about a table, and whether a person has confirmed it."""

    confirmed: bool = True


class Label(Entry):
    """The column that models learn to tell."""

    column: Value
    classes: dict[Value, Values] | Values | None = None
    """The values of each class by its name, or a list of values, each a class."""
    range: Range | None = None
    """Or, where the label is a number, the least and the greatest."""

    @property
    def values(self) -> dict[str, list[str]]:
        """The values of each class, in the classes' order."""
        if isinstance(self.classes, dict):
            return self.classes
        return {value: [value] for value in self.classes or ()}

    @model_validator(mode="after")
    def _two_classes(self) -> Self:
        values = self.values
        if (self.range is None) == (self.classes is None):
            raise ValueError("valid: one of classes and range")
        if self.range is not None:
            return self
        if len(values) < 2 or not all(values.values()):
            raise ValueError("valid: two classes or more, each with a value")
        _distinct([value for of_class in values.values() for value in of_class])
        return self


class Column(Entry):
    """What may stand in a column: numbers in a range, one of some categories, a text, a picture."""

    range: Range | None = None
    """The least and the greatest number. What lies outside is put on the border."""
    categories: Values | None = None
    """Each becomes an input, and one more stands for every other value."""
    text: Annotated[int, Number, Field(ge=8, le=2**16)] | None = None
    """How many inputs the words and letters of a text are hashed to."""
    image: tuple[Side, Side, Literal[1, 3]] | None = None
    """Height, width and channels (1 or 3) to which pictures are brought."""
    missing: Values | None = None
    """Values that mean "unknown", besides empty cells. Without this key no cell may be empty."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [self.range, self.categories, self.text, self.image]
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("valid: one of range, categories, text and image")
        if self.image is not None and self.missing is not None:
            raise ValueError("no picture may be missing; valid: image without missing")
        if self.categories is not None and not self.categories:
            raise ValueError("valid: one category or more")
        return self

    @property
    def n_inputs(self) -> int:
        """How many inputs of a model the column becomes."""
        if self.range is not None:
            return 1 + (self.missing is not None)
        if self.image is not None:
            return math.prod(self.image)
        return self.text if self.text is not None else len(self.categories or ()) + 1


class Nodes(Entry):
    """A column whose values are devices, or the servers of one tier: who they are is public."""

    column: Value


class Record(Entry):
    """Whose rows are one record: a person's, in the place of each by itself."""

    column: Value
    rows: Count
    """The most rows of a person that are kept, the first in the file. It must be public."""


Named = Annotated[Nodes, BeforeValidator(_column_alone)]


class Schema(Block):
    """The public statement about a table."""

    label: Label
    client: Named | None = None
    """The column whose values are the devices."""
    groups: list[Named] = []
    """Columns whose values are servers above the devices, the lowest tier first."""
    record: Record | None = None
    """The column that names persons, if one may have several rows."""
    split: Value | None = None
    """The column that says train or test."""
    test_fraction: Annotated[float, Number, Field(gt=0, lt=1)] = 0.2
    """Without `split`, the share of each client's and class's records that is held out."""
    ignore: list[Value] = []
    """Columns that no model is given."""
    min_records: Count = 2
    """Clients with fewer records are left out."""
    max_clients: Count | None = None
    """Of more clients those with most records are kept, of equal ones the first by name."""
    on_violation: Literal["clamp", "error"] = "clamp"
    """Whether numbers outside their range are put on its border, or refused."""
    columns: dict[Value, Column]

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if not self.columns:
            raise ValueError("valid: at least one column in columns")
        for name in self.roles:
            if name in self.columns:
                raise ValueError(f"{name} has another part already; valid: not in columns, too")
        if len(self.columns) > 1 and any(column.image for column in self.columns.values()):
            raise ValueError("a column of pictures stands alone in columns; valid: ignore others")
        return self

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, W, C) of what a row becomes; rows of no picture end with an input that is always one,
        in the place of a bias."""
        (first, *_) = self.columns.values()
        n_inputs = sum(column.n_inputs for column in self.columns.values()) + 1
        return first.image or (1, n_inputs, 1)

    @property
    def record_shape(self) -> tuple[int, int, int]:
        """(H, W, C) of a record: of a row, or of a person's bag of rows."""
        if self.record is None:
            return self.shape
        return self.record.rows, math.prod(self.shape) + BESIDE, 1

    @property
    def of_one(self) -> "Schema":
        """That of a table of one client's: who it is, and what is tested on, is known."""
        known = ("client", "group", "split")
        named = [column for column, role in self.roles.items() if role in known]
        whole = {"client": None, "groups": [], "split": None, "ignore": [*self.ignore, *named]}
        return self.model_copy(update=whole)

    @property
    def roles(self) -> dict[str, str]:
        """Columns that are no inputs and what each is, in words."""
        named = {self.label.column: "label"}
        named |= {group.column: "group" for group in self.groups}
        named |= {self.client.column: "client"} if self.client else {}
        named |= {self.split: "split"} if self.split else {}
        named |= {self.record.column: "record"} if self.record else {}
        return named | dict.fromkeys(self.ignore, "ignored")

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes' names; none where the label is a number."""
        return tuple(self.label.values)

    @property
    def unconfirmed(self) -> list[str]:
        """The entries that nobody has confirmed, by their keys."""
        return [key for key, entry in self._entries() if not entry.confirmed]

    def _entries(self) -> Iterator[tuple[str, Entry]]:
        yield "label", self.label
        yield from (("client", self.client),) if self.client else ()
        yield from (("record", self.record),) if self.record else ()
        yield from ((f"groups.{n}", group) for n, group in enumerate(self.groups))
        yield from ((f"columns.{name}", column) for name, column in self.columns.items())


def schema_of(config: DatasetConfig) -> Schema | None:
    """The schema of a configuration's table; None where it has none.

    Raises:
        InputError: none is named, or what stands in the file is none.
    """
    if config.name != "table":
        return None
    file = vars(config)["schema"]  # pydantic's blocks have a method of that name
    if file is None:
        remedy = "dataset.name=table needs one; `m2fdp data describe TABLE` writes it"
        raise InputError("dataset.schema", None, remedy)
    return read_schema(file)


def read_schema(file: str) -> Schema:
    """The schema of a file.

    Raises:
        InputError: no such file, or what stands in it is no schema.
    """
    path = Path(file).expanduser()
    if not path.is_file():
        valid = "valid: a schema, which `m2fdp data describe TABLE` writes"
        raise InputError("dataset.schema", file, f"no such file; {valid}")
    return parse_block(Schema, read_block(path), shown(path))


def nice_range(low: float, high: float) -> tuple[float, float]:
    """Round bounds about numbers from `low` to `high`: 28 and 77 make 20 and 80."""
    span = max(high - low, abs(high), 1e-6) or 1.0
    step = 10.0 ** math.floor(math.log10(span))
    bounds = math.floor(low / step) * step, math.ceil(high / step) * step
    first, last = (float(f"{bound:.6g}") for bound in bounds)
    return (first, last) if first < last else (first - step, last + step)
