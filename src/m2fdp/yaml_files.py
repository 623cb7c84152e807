"""YAML files that people write: read strictly, with the file and line of what is wrong in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from yaml import MappingNode, Node, YAMLError

from m2fdp.errors import InputError
from m2fdp.files import shown

# The one in C where PyYAML was built with it: files are read again for every session.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"


def read_yaml(path: Path) -> Any:
    """The file's content as plain values.

    Raises:
        InputError: naming file and line; unreadable, no YAML in UTF-8, a key that is set twice or
            null, or an anchor around itself.
    """
    text = _text(path)
    try:
        _check(path, text, yaml.compose(text, _Loader))
        return yaml.load(text, _Loader)
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


def line_of(path: Path, keys: Sequence[str]) -> int | None:
    """The line, from 1, in which a readable file sets a key inside the blocks named before it."""
    node, line = yaml.compose(_text(path), _Loader), None
    for key in keys:
        if not isinstance(node, MappingNode):
            return None
        pair = next((pair for pair in node.value if str(pair[0].value) == key), None)
        if pair is None:
            return None
        name, node = pair
        line = name.start_mark.line + 1
    return line


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
        if id(node) in visited or not isinstance(node.value, list):
            continue
        visited.add(id(node))
        pairs = node.value if isinstance(node, MappingNode) else []
        for inner in [value for _, value in pairs] or node.value:
            if inner.start_mark.index <= node.start_mark.index < inner.end_mark.index:
                line = inner.start_mark.line
                raise _refusal(path, text, line, "an anchor's value holds itself; write it out")
            waiting.append(inner)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in pairs:
            line = key.start_mark.line
            if key.tag == _NULL:
                raise _refusal(path, text, line, "sets a key that is null; give it a name")
            if isinstance(key.value, str) and key.value != "<<":
                first = lines.get((key.tag, key.value))
                if first is not None:
                    after = "" if first == line else f", after line {first + 1}"
                    raise _refusal(path, text, line, f"sets {key.value} again{after}; keep one")
                lines[key.tag, key.value] = line


def _refusal(path: Path, text: str, line: int, remedy: str) -> InputError:
    lines = text.split("\n")
    content = lines[line].rstrip() if line < len(lines) else ""
    return InputError(f"{shown(path)}, line {line + 1}", content[:60] or "(empty)", remedy)
