"""YAML files that people write: read strictly, with the file and line of what is wrong in them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from yaml import MappingNode, Node, ScalarNode, YAMLError

from m2fdp.core.errors import InputError
from m2fdp.core.files import shown

_TAG = "tag:yaml.org,2002:"
# What a scalar without quotes is, if it is more than text. YAML 1.1 has octal numbers (010), those
# of base 60 (1:30), dates, and yes and no besides; here they stay text, as they are written, and
# the type of the key they are given to decides: 010 is ten to a number and a name to a name.
_SCALARS = {
    "merge": "<<",
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "0|-?[1-9][0-9]{0,300}",  # Python reads no more than 4,300 digits
    "float": r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)"
    r"|[-+]?\.(?:[0-9]+(?:[eE][-+]?[0-9]+)?|inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}


class _Texts(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Every scalar as it is written; in C where PyYAML was built with it: files are read again for
    every session."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


class _Values(_Texts):
    """Scalars of the kinds above."""

    yaml_implicit_resolvers = {}


for _name, _form in _SCALARS.items():
    _Values.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_form})\Z"), None)


def read_yaml(path: Path, names: bool = False) -> Any:
    """The file's content as plain values.

    Args:
        names: whether all that stands in it are names, texts as they are written.

    Raises:
        InputError: naming file and line; unreadable, no YAML in UTF-8, a key that is set twice or
            null, an anchor around itself, or a tag.
    """
    text, loader = _text(path), _Texts if names else _Values
    try:
        _check(path, text, yaml.compose(text, loader))
        return yaml.load(text, loader)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = getattr(error, "position", None)  # of characters that YAML does not allow
        line = mark.line if mark is not None else text.count("\n", 0, position or 0)
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise _refusal(path, text, line, f"is no YAML: {' '.join(reason.split())}") from None


def read_block(path: Path) -> dict[Any, Any]:
    """The file's keys and values; none where it is empty.

    Raises:
        InputError: as `read_yaml`, or it holds something else.
    """
    content = read_yaml(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        kind = "a list" if isinstance(content, list) else "a plain value"
        raise InputError(shown(path), content, f"is {kind}; valid: keys with values, as `seed: 1`")
    return content


def read_value(text: str) -> Any:
    """A value as a command line gives it: a scalar, or a list or block in brackets.

    Raises:
        YAMLError: a bracket or quote that is not closed, or what else is no YAML within one.
    """
    text = text.strip()
    plain = text[:1] not in {"[", "{", '"', "'"} and _scalar_kind(text) in {"str", "merge"}
    return text if plain else yaml.load(text, _Values)


def line_of(path: Path, keys: Sequence[str]) -> int | None:
    """The line, from 1, in which a readable file sets a key inside the blocks named before it."""
    return _line_below(yaml.compose(_text(path), _Values), keys)


def _line_below(node: Node | None, keys: Sequence[str]) -> int | None:
    """A file may write several keys as one, with dots."""
    for name, content in node.value if isinstance(node, MappingNode) else []:
        for n in range(1, len(keys) + 1):
            if name.value == ".".join(keys[:n]):
                inside = _line_below(content, keys[n:])
                return inside if n < len(keys) else name.start_mark.line + 1
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = error.object[error.start : error.end]
        remedy = f"byte {error.start} is not UTF-8; save the file as UTF-8"
        raise InputError(shown(path), wrong, remedy) from None
    except OSError as error:
        raise InputError(shown(path), "(file)", f"can't be read: {error.strerror}") from None


def _check(path: Path, text: str, root: Node | None) -> None:
    """Of a key set twice YAML itself would take the later value and say nothing."""
    visited: set[int] = set()  # an anchor's node stands in several places
    waiting = [root] if root is not None else []
    while waiting:
        node = waiting.pop()
        if node.tag not in {f"{_TAG}{_kind(node)}", f"{_TAG}str"}:
            raise _refusal(path, text, node.start_mark.line, "has a tag (!), of which none is read")
        if id(node) in visited or not isinstance(node.value, list):
            continue
        visited.add(id(node))
        pairs = node.value if isinstance(node, MappingNode) else []
        for inner in [value for _, value in pairs] or node.value:
            if inner.start_mark.index <= node.start_mark.index < inner.end_mark.index:
                line = inner.start_mark.line
                raise _refusal(path, text, line, "an anchor's value holds itself; write it out")
            waiting.append(inner)
        lines: dict[str, int] = {}
        for key, _ in pairs:
            line = key.start_mark.line
            if key.tag == f"{_TAG}null":
                raise _refusal(path, text, line, "sets a key that is null; give it a name")
            if isinstance(key.value, str) and key.value != "<<":
                first = lines.get(key.value)
                if first is not None:
                    after = "" if first == line else f", after line {first + 1}"
                    raise _refusal(path, text, line, f"sets {key.value} again{after}; keep one")
                lines[key.value] = line


def _kind(node: Node) -> str:
    """What a list, a block or a scalar without quotes is to YAML."""
    if not isinstance(node, ScalarNode):
        return "map" if isinstance(node, MappingNode) else "seq"
    return _scalar_kind(node.value)


def _scalar_kind(text: str) -> str:
    kinds = (kind for kind, form in _SCALARS.items() if re.fullmatch(form, text))
    return next(kinds, "str")


def _refusal(path: Path, text: str, line: int, remedy: str) -> InputError:
    lines = text.split("\n")
    content = lines[line].rstrip() if line < len(lines) else ""
    return InputError(f"{shown(path)}, line {line + 1}", content[:60] or "(empty)", remedy)
