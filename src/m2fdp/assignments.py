"""What a command line sets: `KEY=VALUE,KEY=VALUE`, values as in a file."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from yaml import YAMLError

from m2fdp.core.errors import InputError
from m2fdp.given.loading import in_blocks, overlaid
from m2fdp.given.yaml_files import read_value

OPTION = "--params"
_FORM = "give KEY=VALUE, several separated by commas"
_OPENING, _CLOSING, _QUOTES = "[{", "]}", "\"'"


def read_assignments(given: Iterable[object]) -> dict[str, Any]:
    """Keys and values as blocks; of a key that is given again, the later value counts.

    Args:
        given: `KEY=VALUE`, several separated by commas, keys in blocks with dots; or mappings, of
            keys with or without dots. A value may be a list in brackets, a block in braces or a
            text in quotes; commas in it separate nothing.

    Raises:
        InputError: naming what is not of that form, or a block set both as a whole and in part.
    """
    merged: dict[str, Any] = {}
    for each in given:
        pairs = each if isinstance(each, Mapping) else dict(_pairs(each))
        merged = overlaid(merged, in_blocks(pairs.items(), OPTION))
    return merged


def _pairs(text: object) -> Iterator[tuple[str, Any]]:
    if not isinstance(text, str):
        raise InputError(OPTION, text, _FORM)
    for item in split_outside(text, ","):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not (equals and all(key.split("."))):
            raise InputError(OPTION, item.strip(), _remedy(text))
        try:
            yield key, read_value(value)
        except (YAMLError, ValueError) as error:
            problem = getattr(error, "problem", None) or error
            raise InputError(OPTION, item, f"the value is no YAML: {problem}") from None


def split_outside(text: str, separator: str) -> Iterator[str]:
    """The parts between separators that stand in no value's brackets and quotes."""
    depth, quote, start, before = 0, "", 0, separator
    for place, character in enumerate(text):
        opens = depth > 0 or before in f"={separator}"
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES and (before in f"=,:{separator}{_OPENING}"):
            quote = character
        elif character in _OPENING and opens:
            depth += 1
        elif character in _CLOSING and depth:
            depth -= 1
        elif character == separator and not depth:
            yield text[start:place]
            start = place + 1
        if not character.isspace():
            before = character
    yield text[start:]


def _remedy(text: str) -> str:
    """A list without brackets is the most frequent reason."""
    if listed := re.search(r"([\w.]+)= *([^=,[\]{}]+(?:,[^=,[\]{}]+)+)(?=,|$)", text):
        key, elements = listed.groups()
        elements = re.sub(" *, *", ",", elements.strip())
        return f"{_FORM}, lists in brackets: {key}=[{elements}]"
    return _FORM
