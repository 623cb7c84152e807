"""What is made of the keys' texts: the files of conf/base, and docs/configuration.md.

`python -m m2fdp.config.reference` writes them anew, in the project's root.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from m2fdp.config.readers import readers_of
from m2fdp.config.root import Config
from m2fdp.config.types import LARGEST, SINCE, SMALLEST, Block
from m2fdp.own_code import FORM

# What stands in which file; a block that is not named here has one of its own.
_FILES = {
    "dataset": "parameters_data.yml",
    "partition": "parameters_data.yml",
    "threat": "parameters_privacy.yml",
    "leakage": "parameters_tiering.yml",
}
# A file would set them for all runs: commands and studies give each run its own.
COMMAND_LINE = frozenset({"cell"})
_WIDTH = 100
_INTRODUCTION = f"""\
# Configuration

Every key, its default and what it does. The defaults stand in `conf/base/parameters*.yml`, an
environment such as `conf/mnist` sets what differs, and commands set single keys:
`kedro run --env=mnist --params=privacy.epsilon=2.0,seed=3`. In Python,
`load_config("conf/mnist", {{"privacy.epsilon": 2.0}}, seed=3)` makes the same configuration, and
`Config()` is that of conf/base.

- An unknown key, or a value that is not valid, ends in one line that says what would be.
- On the command line a list is written with bars: `topology.fanouts=10|5`. `null` clears a key.
- Numbers are at most 1e9; those that must be positive are at least 1e-9.
- A key that only some runs read says by whom; of several readers all are needed. Where nothing
  reads it, another value than its default is refused in one line.
- Pairs of keys that exclude each other are in [what-goes-together.md](what-goes-together.md).
- `{FORM}` is code of your own, in a module in the project's root (the folder
  with `pyproject.toml`): [adding-an-algorithm.md](adding-an-algorithm.md).

This page is made from the texts in `src/m2fdp/config` by `python -m m2fdp.config.reference`.
"""


def parameter_files() -> dict[str, str]:
    """The content of `conf/base/parameters*.yml`, by the file's name."""
    defaults, files = Config(), dict[str, str]()
    schema = Config.model_json_schema()["properties"]
    for name, field in Config.model_fields.items():
        value = getattr(defaults, name)
        if name in COMMAND_LINE:
            continue
        if isinstance(value, Block):
            file, gap = _FILES.get(name, f"parameters_{name}.yml"), "\n"
        else:
            file, gap = "parameters.yml", ""
        before = files[file] + gap if file in files else ""
        lines = _yaml_lines(name, value, field, schema[name])
        files[file] = before + "".join(f"{line}\n" for line in lines)
    return files


def page() -> str:
    """The content of docs/configuration.md."""
    parts = [_INTRODUCTION]
    top = {
        name: field
        for name, field in Config.model_fields.items()
        if not isinstance(getattr(Config(), name), Block)
    }
    parts += ["## Top level\n", _table("", Config(), top)]
    for name, block, readers in _blocks("", Config()):
        fields = type(block).model_fields
        own = {key: f for key, f in fields.items() if not isinstance(getattr(block, key), Block)}
        parts += [f"## {name}\n", f"{_text_of(block)}\n", _table(f"{name}.", block, own, readers)]
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


# --- conf/base ---------------------------------------------------------------------------


def _yaml_lines(
    name: str, value: Any, field: FieldInfo, schema: Mapping[str, Any], indent: str = ""
) -> Iterator[str]:
    """A key with its value, below its text."""
    is_block = isinstance(value, Block)
    text = _text_of(value) if is_block else _text_with_names(schema, field)
    mark = f"{indent}# "
    yield from textwrap.wrap(text, _WIDTH, initial_indent=mark, subsequent_indent=mark)
    if not is_block:
        yield f"{indent}{name}: {in_yaml(value)}"
        return
    yield f"{indent}{name}:"
    inside = type(value).model_json_schema()["properties"]
    for key, inner in type(value).model_fields.items():
        yield from _yaml_lines(key, getattr(value, key), inner, inside[key], f"{indent}  ")


def _text_with_names(schema: Mapping[str, Any], field: FieldInfo) -> str:
    """The key's text and, if it leaves out one of the names that are valid, all of them."""
    text = field.description or ""
    names = schema.get("enum") or schema.get("items", {}).get("enum") or []
    known = all(str(name) in text for name in names)
    return text if known else f"{text} Valid: {', '.join(map(str, names))}."


def in_yaml(value: Any) -> str:
    """A value on one line, such that YAML reads the same."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        mantissa, e, exponent = repr(value).partition("e")
        return f"{float(mantissa)}e{int(exponent):+d}" if e else mantissa
    if isinstance(value, list):
        return f"[{', '.join(map(in_yaml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {in_yaml(inner)}' for key, inner in value.items())}}}"
    return str(value)


# --- docs/configuration.md ---------------------------------------------------------------


def _table(
    prefix: str, block: Block, fields: Mapping[str, FieldInfo], readers: tuple[str, ...] = ()
) -> str:
    """Args: readers: the block's own."""
    schema = type(block).model_json_schema()
    rows = ["| key | valid | default | | read by |", "|---|---|---|---|---|"]
    for name, field in fields.items():
        valid = _valid(schema["properties"][name])
        extra = field.json_schema_extra
        since = f" Since {extra[SINCE]}." if isinstance(extra, dict) and SINCE in extra else ""
        text, usual = f"{field.description}{since}", in_yaml(getattr(block, name))
        read_by = "; ".join((*readers, *readers_of(field)))
        rows.append(f"| `{prefix}{name}` | {valid} | `{usual}` | {text} | {read_by} |")
    return "\n".join(rows) + "\n"


def _valid(schema: Mapping[str, Any]) -> str:
    """The values that a JSON schema allows, in words."""
    if "anyOf" in schema:
        return " or ".join(_valid(option) for option in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "null":
            return "`null`"
        case "boolean":
            return "`true`, `false`"
        case "integer" | "number" as kind:
            return _numbers("whole number" if kind == "integer" else "number", schema)
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
        "above": schema.get("gt", schema.get("exclusiveMinimum")),
        "at least": schema.get("ge", schema.get("minimum")),
        "below": schema.get("lt", schema.get("exclusiveMaximum")),
        "at most": schema.get("le", schema.get("maximum")),
    }
    limits = [
        f"{words} {bound:,.10g}"
        for words, bound in bounds.items()
        if bound is not None and bound not in (SMALLEST, LARGEST)
    ]
    return f"{kind} {', '.join(limits)}".strip()


def main(root: Path = Path()) -> None:
    """Write the files into the project with that root."""
    for name, content in parameter_files().items():
        (root / "conf/base" / name).write_text(content, encoding="utf-8")
    (root / "docs/configuration.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
