"""A configuration from files and values, without Kedro."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from m2fdp.config.parsing import parse_config
from m2fdp.config.root import Config
from m2fdp.errors import InputError
from m2fdp.files import shown
from m2fdp.yaml_files import line_of, read_block

_SUFFIXES = (".yml", ".yaml")


def load_config(*sources: str | Path | Mapping[str, Any], **overrides: Any) -> Config:
    """The configuration that some sources make over the defaults.

    The later of two sources wins, key by key: blocks are merged, lists and values replaced, and
    null takes the place of all that was there.

    Args:
        sources: files of parameters (YAML), folders with files `parameters*.yml`, such as
            `conf/fashion_mnist`, or mappings, nested or with dotted keys:
            `{"privacy.epsilon": 2.0}`.
        overrides: top-level keys, over all sources: `seed=3`.

    Raises:
        InputError: a source of another type, a file that can't be read, a key set twice, or what
            `parse_config` refuses.
    """
    # The one default with keys of its own: as over conf/base, a source's go over them one by one.
    every = Config().training.local_aggregation
    merged = _nested({"training.local_aggregation": every})
    for source in (*sources, overrides):
        merged = overlaid(merged, _content(source))
    return parse_config(merged)


def _content(source: object) -> dict[str, Any]:
    """A source's keys and values, nested."""
    if isinstance(source, Mapping):
        return _nested(source)
    if not isinstance(source, str | PathLike):
        raise InputError("load_config", source, "give files, folders or mappings of keys to values")
    path = Path(source)
    if not path.is_dir():
        return _file(path)
    content: dict[str, Any] = {}
    set_in: dict[str, Path] = {}
    files = sorted(file for file in path.rglob("parameters*") if file.suffix in _SUFFIXES)
    if not files:
        raise InputError(
            "load_config", str(path), "has no parameters*.yml; name a folder such as conf/mnist"
        )
    for file in files:
        block = _file(file)
        for key in block:
            if set_in.setdefault(key, file) != file:
                both = f"{shown(set_in[key])}, {shown(file)}"
                raise InputError(key, "(twice)", f"is set in {both}; keep one")
        content |= block
    return content


def _file(path: Path) -> dict[str, Any]:
    content = {str(key): _with_text_keys(value) for key, value in read_block(path).items()}
    for keys, value in _leaves(content):
        if isinstance(value, str) and "${" in value:
            place = f"{shown(path)}, line {line_of(path, keys)}: {'.'.join(keys)}"
            raise InputError(place, value, "is a reference, which Kedro resolves; write it out")
    return content


def _leaves(content: Mapping[str, Any], keys: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*keys, key))
        else:
            yield (*keys, key), value


def _with_text_keys(value: Any) -> Any:
    """Layers are numbers in a file and texts in a dotted key; they must meet."""
    if not isinstance(value, Mapping):
        return value
    return {str(key): _with_text_keys(inner) for key, inner in value.items()}


def _nested(dotted: Mapping[Any, Any]) -> dict[str, Any]:
    """A mapping whose keys may be dotted, as blocks; the later of two values wins."""
    nested: dict[str, Any] = {}
    for key, value in dotted.items():
        content = _nested(value) if isinstance(value, Mapping) else value
        for part in reversed(str(key).split(".")):
            content = {part: content}
        nested = overlaid(nested, content)
    return nested


def overlaid(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Both, block by block; where one has a value, that of `overlay`. Neither is changed."""
    merged = dict(base)
    for key, value in overlay.items():
        other = merged.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            merged[key] = overlaid(other, value)
        else:
            merged[key] = value
    return merged
