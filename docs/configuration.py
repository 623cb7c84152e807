"""docs/configuration.md and the files of conf/base, made of the keys' texts: `python
docs/configuration.py` from the root."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import m2fdp  # noqa: F401  # which lists the rooms
from m2fdp.core.algorithms import ALGORITHMS
from m2fdp.core.blocks import LARGEST, SMALLEST, Block, readers_of
from m2fdp.core.config import Config
from m2fdp.core.experiment.request import in_words
from m2fdp.core.formatting import in_yaml
from m2fdp.core.own_code import FORM

# A file would set them for all runs: commands and studies give each run its own.
COMMAND_LINE = frozenset({"cell"})
DOCS = Path(__file__).parent
_WIDTH = 100
EVERY_RUN = "Every run"
_HEAD = ("| key | valid | default | |", "|---|---|---|---|")
_INTRODUCTION = f"""\
# Configuration

Here you look up every key: what is valid, its default and what it does. Defaults stand in
`conf/base/parameters*.yml`, an environment such as `conf/mnist` sets what differs, and commands set
single keys: `kedro run --env=mnist --params=privacy.epsilon=2.0,seed=3`. In Python:

```python
from m2fdp import load_config

config = load_config("conf/mnist", {{"privacy.epsilon": 2.0}}, seed=3)
defaults = load_config()
```

- A list stands in brackets, `topology.fanouts=[10,5]`, or has bars, `10|5`. `null` clears a key.
- Numbers are at most 1e9; those that must be positive are at least 1e-9.
- Keys stand below who reads them. Where nothing reads a key, another value than its default is
  refused in one line. So are [pairs that exclude each other](what-goes-together.md).
- J, C, H, G and D are the [papers](papers.md). `{FORM}` is
  [code of your own](adding-an-algorithm.md).

`python docs/configuration.py` makes this page of texts in `src/m2fdp/core/config` and the rooms.
"""


def parameter_files() -> dict[str, str]:
    """The content of `conf/base/parameters*.yml`, by the file's name."""
    defaults, files = Config(), dict[str, str]()
    schema = Config.model_json_schema()["properties"]
    for name in Config.model_fields:
        value = getattr(defaults, name)
        if name in COMMAND_LINE:
            continue
        if isinstance(value, Block):
            file, gap = f"parameters_{value.file or name}.yml", "\n"
        else:
            file, gap = "parameters.yml", ""
        before = files[file] + gap if file in files else ""
        lines = _yaml_lines(name, value, text_of(Config, name), schema[name])
        files[file] = before + "".join(f"{line}\n" for line in lines)
    return files


def page() -> str:
    """The content of docs/configuration.md."""
    parts, told = [_INTRODUCTION], set[str]()
    groups: dict[str, list[tuple[str, Block, list[str]]]] = {EVERY_RUN: []}
    for name, block, around in [("", Config(), ()), *_blocks("", Config())]:
        by_title: dict[str, list[str]] = {}
        for row, readers in _rows(name, block, around):
            by_title.setdefault(
                f"Only with {in_words(readers[0])}" if readers else EVERY_RUN, []
            ).append(row)
        for title, rows in by_title.items():
            groups.setdefault(title, []).append((name, block, rows))
    for title, blocks in groups.items():
        parts.append(f"## {title}\n")
        for name, block, rows in blocks:
            if name and title == EVERY_RUN:
                parts.append(f"### {name}\n")
            if name and name not in told:
                parts.append(f"{_text_of(block)}\n")
            told.add(name)
            parts.append("\n".join([*_HEAD, *rows]) + "\n")
    return "\n".join(parts)


def _blocks(
    prefix: str, block: Block, readers: tuple[str, ...] = ()
) -> Iterator[tuple[str, Block, tuple[str, ...]]]:
    """The blocks inside one, each followed by those inside it, by dotted name, with their readers
    and those of the blocks around them."""
    for name, field in type(block).model_fields.items():
        value, every = getattr(block, name), (*readers, *readers_of(field))
        if isinstance(value, Block):
            yield f"{prefix}{name}", value, every
            yield from _blocks(f"{prefix}{name}.", value, every)


def _text_of(block: Block) -> str:
    return " ".join((inspect.getdoc(type(block)) or "").split("\n\n")[0].split())


@cache
def texts_of(block: type) -> dict[str, str]:
    """The texts below the keys of a block, and of the blocks that it extends, by key."""
    texts: dict[str, str] = {}
    for kind in reversed(block.__mro__):
        if not kind.__module__.startswith("m2fdp.") or kind.__doc__ is None:
            continue
        tree = ast.parse(inspect.getsource(inspect.getmodule(kind)))
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        (body,) = [node.body for node in classes if node.name == kind.__name__]
        for one, other in pairwise(body):
            match one, other:
                case ast.AnnAssign(ast.Name(key)), ast.Expr(ast.Constant(str(text))):
                    texts[key] = " ".join(text.split())
    return texts


def text_of(block: type, key: str) -> str:
    """What users read of a key."""
    text = block.model_fields[key].description or texts_of(block).get(key, "")
    more = [name for name in ALGORITHMS if name not in text] if key == "algorithm" else []
    return f"{text} Valid, too: {', '.join(more)}." if more else text


# --- conf/base ---------------------------------------------------------------------------


def _yaml_lines(
    name: str, value: Any, text: str, schema: Mapping[str, Any], indent: str = ""
) -> Iterator[str]:
    """A key with its value, below its text."""
    is_block = isinstance(value, Block)
    text = _text_of(value) if is_block else _text_with_names(schema, text)
    mark = f"{indent}# "
    yield from textwrap.wrap(text, _WIDTH, initial_indent=mark, subsequent_indent=mark)
    if not is_block:
        yield f"{indent}{name}: {in_yaml(value)}"
        return
    yield f"{indent}{name}:"
    inside = type(value).model_json_schema()["properties"]
    for key in type(value).model_fields:
        yield from _yaml_lines(
            key, getattr(value, key), text_of(type(value), key), inside[key], f"{indent}  "
        )


def _text_with_names(schema: Mapping[str, Any], text: str) -> str:
    """The key's text and, if it leaves out one of the names that are valid, all of them."""
    names = schema.get("enum") or schema.get("items", {}).get("enum") or []
    known = all(str(name) in text for name in names)
    return text if known else f"{text} Valid: {', '.join(map(str, names))}."


# --- docs/configuration.md ---------------------------------------------------------------


def _rows(
    name: str, block: Block, around: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The row of each key of a block, and its readers.

    Args:
        around: readers of the block itself.
    """
    schema = type(block).model_json_schema()
    for key, field in type(block).model_fields.items():
        value = getattr(block, key)
        if isinstance(value, Block):
            continue
        readers = (*around, *readers_of(field))
        and_by = (
            f" Read only with {', '.join(map(in_words, readers[1:]))}, too." if readers[1:] else ""
        )
        dotted, valid = f"{name}.{key}".lstrip("."), _valid(schema["properties"][key])
        text = f"{text_of(type(block), key)}{and_by}".replace("|", "\\|")
        yield f"| `{dotted}` | {valid} | `{in_yaml(value)}` | {text} |", readers


def _valid(schema: Mapping[str, Any]) -> str:
    """The values that a JSON schema allows, in words."""
    if "anyOf" in schema:
        return " or ".join(_valid(option) for option in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return ", ".join(
            f"`{in_yaml(value)}`" for value in schema.get("enum", [schema.get("const")])
        )
    match schema.get("type"):
        case "null":
            return "`null`"
        case "boolean":
            return "`true`, `false`"
        case "integer" | "number" as kind:
            return _numbers("integer" if kind == "integer" else "number", schema)
        case "array":
            return f"list: {_valid(schema['items'])}"
        case "object":
            values = schema.get("additionalProperties")
            inner = _valid(values) if isinstance(values, dict) else "value"
            return f"block: {inner}"
    return "text"


def _numbers(kind: str, schema: Mapping[str, Any]) -> str:
    """The bounds that the page's introduction does not name."""
    bounds = {
        ">": schema.get("gt", schema.get("exclusiveMinimum")),
        "≥": schema.get("ge", schema.get("minimum")),
        "<": schema.get("lt", schema.get("exclusiveMaximum")),
        "≤": schema.get("le", schema.get("maximum")),
    }
    limits = [
        f"{words} {bound:,.10g}"
        for words, bound in bounds.items()
        if bound is not None and bound not in (SMALLEST, LARGEST)
    ]
    return f"{kind} {', '.join(limits)}".strip()


if __name__ == "__main__":
    for name, content in parameter_files().items():
        (DOCS.parent / "conf/base" / name).write_text(content, encoding="utf-8")
    (DOCS / "configuration.md").write_text(page(), encoding="utf-8")
