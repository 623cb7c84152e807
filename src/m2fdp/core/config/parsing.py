"""Parameters, as files and commands give them, become a `Config`, or a line on what is wrong."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from m2fdp.core.config.retired import RETIRED
from m2fdp.core.config.root import Config
from m2fdp.core.errors import BLOCK, InputError, among, did_you_mean

B = TypeVar("B", bound=BaseModel)


def parse_config(parameters: dict[str, Any]) -> Config:
    """Validate nested parameters into a `Config`; keys that are not given have their defaults.

    Raises:
        InputError: naming the first offending key, its value and what would be valid.
    """
    return parse_block(Config, parameters)


def parse_block(block: type[B], values: Mapping[str, Any], prefix: str = "") -> B:
    """Validate nested values into a block.

    Args:
        prefix: the dotted key of the block itself, for errors.

    Raises:
        InputError: naming the first offending key, its value and what would be valid.
    """
    try:
        return block.model_validate(values)
    except ValidationError as error:
        known_keys, everywhere = partial(_known_keys, block), tuple(_dotted_keys(block, prefix))
        raise refusal(error, prefix, known_keys, everywhere) from None


def refusal(
    error: ValidationError,
    prefix: str,
    known_keys: Callable[[Sequence[int | str]], Sequence[str]],
    everywhere: Sequence[str] = (),
) -> InputError:
    """The line for the first thing that is wrong in a block.

    Args:
        prefix: the dotted key of the block itself, if it has one.
        known_keys: the keys of the block at a place in it.
        everywhere: dotted keys that a key in the wrong block may be meant for.
    """
    first = error.errors()[0]
    *around, last = first["loc"] or ("",)
    unknown = first["type"] == "extra_forbidden"
    keys = [str(part) for part in around if _is_key(part)]
    keys += [str(last)] if last != "" and (unknown or _is_key(last)) else []
    key = ".".join([prefix, *keys] if prefix else keys) or "parameters"
    if unknown:
        if key in RETIRED:
            return InputError(key, first["input"], RETIRED[key].why)
        names = known_keys(first["loc"][:-1])
        homes = [dotted for dotted in everywhere if dotted.rpartition(".")[2] == keys[-1]]
        remedy = f"valid keys are {among(keys[-1], names)}" if names else "there are none"
        if homes and not did_you_mean(keys[-1], names):
            remedy += f"; did you mean {' or '.join(homes)}?"
        return InputError(key, first["input"], f"unknown key; {remedy}")
    value = "(missing)" if first["type"] == "missing" else first["input"]
    if isinstance(value, dict) and first["type"] == "value_error":
        value = BLOCK
    remedy = first["msg"].removeprefix("Value error, ")
    if first["type"] == "model_type":
        inner = next((dotted for dotted in everywhere if dotted.startswith(f"{key}.")), key)
        remedy = f"is a block; give those of its keys that differ, such as {inner}"
    if first["type"] == "string_type" and isinstance(value, int | float):
        remedy += f"; write it in quotes, '{value}'"
    if first["type"] == "literal_error":
        remedy += did_you_mean(value, re.findall("'(.*?)'", first["ctx"]["expected"]))
    return InputError(key, value, remedy)


def _is_key(part: object) -> bool:
    """Pydantic puts the branch of a union into `loc`; users know only their own keys."""
    return isinstance(part, int) or "[" not in str(part)


def _known_keys(block: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    for part in location:
        block = block.model_fields[str(part)].annotation  # type: ignore[assignment]
    return sorted(block.model_fields)


def _dotted_keys(block: type[BaseModel], prefix: str) -> Iterator[str]:
    """Of a block and of all blocks inside it, its own key before them."""
    for name, field in block.model_fields.items():
        key, kind = f"{prefix}.{name}" if prefix else name, field.annotation
        yield key
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _dotted_keys(kind, key)
