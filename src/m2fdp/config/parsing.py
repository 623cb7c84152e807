"""Parameters, as files and commands give them, become a `Config`, or a line on what is wrong."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from m2fdp.config.root import Config
from m2fdp.errors import InputError


def parse_config(parameters: dict[str, Any]) -> Config:
    """Validate nested parameters into a `Config`; keys that are not given have their defaults.

    Raises:
        InputError: naming the first offending key, its value and what would be valid.
    """
    try:
        return Config.model_validate(parameters)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if _is_key(part)) or "parameters"
        if first["type"] == "extra_forbidden":
            raise InputError(key, first["input"], _known_keys(first["loc"][:-1])) from None
        value = first["input"]
        if isinstance(value, dict) and first["type"] == "value_error":
            value = "(block)"
        raise InputError(key, value, first["msg"].removeprefix("Value error, ")) from None


def _is_key(part: object) -> bool:
    """Pydantic puts the branch of a union into `loc`; users know only their own keys."""
    return isinstance(part, int) or "[" not in str(part)


def _known_keys(location: tuple[int | str, ...]) -> str:
    block: type[BaseModel] = Config
    for part in location:
        block = block.model_fields[str(part)].annotation  # type: ignore[assignment]
    return "unknown key; valid keys are " + ", ".join(sorted(block.model_fields))
