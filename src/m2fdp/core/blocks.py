"""What blocks of the configuration are made of: ranges, lists from texts, names, marks, `Block`."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeGuard, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    create_model,
)
from pydantic.fields import FieldInfo
from yaml import YAMLError

from m2fdp.core.errors import did_you_mean
from m2fdp.core.own_code import FORM, GIVEN, is_own
from m2fdp.core.rooms import load, rooms

# Products of some numbers must still be numbers in float32.
SMALLEST, LARGEST = 1e-9, 1e9
# Marks of a key or a block. It came after version 0.1.0: see `m2fdp.core.config.recorded`.
SINCE = "since"
# Only some runs read it. A text is a name that a room knows (`Room.readers`), `the pipeline NAME`,
# `key: value or value` (the other key has one of these values), or `key` alone (the other key
# differs from its default); of several, with ` | ` between them, one must be true. Of a list of
# texts all must be true.
READ_BY = "read_by"
# No result depends on it: where files go, how learners are spread over processes, how a run
# outlives an interruption.
NO_RESULT = "no_result"
# No release depends on it, though results may: see `m2fdp.core.config.released`.
NO_RELEASE = "no_release"
# A later key whose default is not what was before it: it is recorded wherever its block counts.
PINNED = "pinned"


def _no_bool(value: Any) -> Any:
    """YAML reads `yes` and `on` as true, which Python would count as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _split_bars(value: Any) -> Any:
    """A list may be a text, too: `0.5|1.0`, with brackets or without."""
    if isinstance(value, str) and value.startswith("["):
        with suppress(YAMLError):  # then it is one text, which its key's check refuses
            value = GIVEN["list"](value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        (value,) = value
    if isinstance(value, str):
        return value.split("|")
    return [value] if isinstance(value, (int, float)) else value


def _whole_number_as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


Number = BeforeValidator(_no_bool)
FromText = BeforeValidator(_split_bars)
Name = Annotated[str, BeforeValidator(_whole_number_as_text)]

Probability = Annotated[float, Number, Field(ge=0, le=1)]
Decay = Annotated[float, Number, Field(ge=0, lt=1)]
Positive = Annotated[float, Number, Field(gt=0), Field(ge=SMALLEST, le=LARGEST)]
Epsilon = Annotated[float, Number, Field(gt=0), Field(ge=SMALLEST, le=1e6)]
NonNegative = Annotated[float, Number, Field(ge=0, le=LARGEST)]
Count = Annotated[int, Number, Field(ge=1, le=int(LARGEST))]
Decibel = Annotated[float, Number, Field(ge=-300, le=300)]


def spelled(pattern: str, valid: str) -> AfterValidator:
    """The annotation of a text in a form, which a refusal says in words."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"valid: {valid}")
        return text

    return AfterValidator(check)


def one_of(*known: str) -> tuple[AfterValidator, WithJsonSchema]:
    """The annotations of a name: one of those known here, or the user's own code."""
    names = ", ".join(map(repr, known))

    def check(name: str) -> str:
        if name not in known and not is_own(name):
            raise ValueError(f"valid: {names} or {FORM}{did_you_mean(name, known)}")
        return name

    return AfterValidator(check), WithJsonSchema({"enum": [*known, FORM]})


class Block(BaseModel):
    """A frozen block of configuration that refuses keys it does not know, infinities and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    # Of the block as a whole.
    marks: ClassVar[dict[str, JsonValue]] = {}
    # The file of conf/base that it stands in, `parameters_NAME.yml`; empty = one of its own.
    file: ClassVar[str] = ""


class Extensible(Block):
    """A block to which rooms may bring keys, `extended`."""

    if TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any: ...


E = TypeVar("E", bound=Extensible)


def extended(name: str) -> Callable[[type[E]], type[E]]:
    """A decorator that gives the block of that name the keys that rooms bring, behind its own; the
    root, whose name is empty, gets whole blocks."""

    def extend(block: type[E]) -> type[E]:
        told = [pair for room in rooms() for pair in room.blocks.items()]
        bases = [load(path) for of, path in told if of == name]
        new = {} if name else {of: load(path) for of, path in told if of not in block.model_fields}
        made: type[E] = create_model(  # type: ignore[call-overload]  # fields by name
            block.__name__,
            __base__=(*reversed(bases), block),  # fields stand in the bases' reverse order
            __module__=block.__module__,
            __doc__=block.__doc__,
            **{of: (kind, Field(default=kind())) for of, kind in new.items()},
        )
        return made

    return extend


def key(default: Any, **marks: Any) -> Any:
    """A key with its default and its marks, by the names above."""
    return Field(default=default, json_schema_extra=marks)


def is_block(kind: Any) -> TypeGuard[type[Block]]:
    """Whether the type of a field is a block."""
    return isinstance(kind, type) and issubclass(kind, Block)


def marks_of(field: FieldInfo) -> dict[str, Any]:
    """The marks of a key, or of the block that it is."""
    extra = field.json_schema_extra
    of_block = field.annotation.marks if is_block(field.annotation) else {}
    return {**of_block, **(extra if isinstance(extra, dict) else {})}


def readers_of(field: FieldInfo) -> tuple[str, ...]:
    """The texts of who reads a key, or the block that it is."""
    texts = marks_of(field).get(READ_BY, ())
    return (texts,) if isinstance(texts, str) else tuple(texts)
