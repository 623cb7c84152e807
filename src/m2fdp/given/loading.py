"""Parameters, as files, commands and values give them, become a `Config`, or a line on what is
wrong."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from m2fdp.core.blocks import Block, is_block
from m2fdp.core.config import Config
from m2fdp.core.errors import BLOCK, InputError, among, did_you_mean
from m2fdp.core.files import shown
from m2fdp.given.retired import RETIRED
from m2fdp.given.yaml_files import line_of, read_block

B = TypeVar("B", bound=BaseModel)
_SUFFIXES = (".yml", ".yaml", ".json")
_KINDS = ("parameters", "catalog", "credentials", "mlflow")  # of files, by how their names begin
_LIKE = 0.75  # of two names, difflib's ratio; a nearer one is a slip


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
    for source in sources:
        if isinstance(source, str | PathLike) and Path(source).is_dir():
            unread_files(Path(source), merged)
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
    content = read_parameters(path)
    for keys, value in _leaves(content):
        if isinstance(value, str) and "${" in value:
            place = f"{shown(path)}, line {line_of(path, keys)}: {'.'.join(keys)}"
            raise InputError(place, value, "is a reference, which Kedro resolves; write it out")
    return content


def read_parameters(path: Path) -> dict[str, Any]:
    """A file's keys and values as blocks, whose keys are texts; of two blocks in one, the keys may
    be written with a dot between them. A block that is emptied sets nothing.

    Raises:
        InputError: a file that can't be read, or a key set twice.
    """
    return _less_emptied(in_blocks(read_block(path).items(), shown(path)), Config)


def unread_files(folder: Path, parameters: Mapping[str, Any]) -> list[Path]:
    """Files of an environment that look like configuration and that nothing reads.

    Args:
        parameters: a run's; a file that one of them names is read by what it is for.

    Raises:
        InputError: one whose name is almost that of a file that is read.
    """
    blocks = [name for name, field in Config.model_fields.items() if is_block(field.annotation)]
    names = [*_KINDS, "globals", *(f"parameters_{block}" for block in blocks)]
    meant = {short: name for name in names for short in (name, name.removeprefix("parameters_"))}
    named = {Path(value).name for _, value in _leaves(parameters) if isinstance(value, str)}
    unread = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        parts, suffix = file.relative_to(folder).parts, file.suffix
        if file.name in named or "studies" in parts or any(part[0] == "." for part in parts):
            continue
        of_a_kind = any(part.startswith(_KINDS) for part in parts) or parts == ("globals.yml",)
        if of_a_kind and suffix in _SUFFIXES or suffix.lower() not in (*_SUFFIXES, ".toml", ".txt"):
            continue
        if near := get_close_matches(file.stem.casefold(), meant, 1, _LIKE):
            remedy = f"nothing reads it; did you mean {meant[near[0]]}.yml?"
            raise InputError("file", shown(file), remedy)
        if suffix in _SUFFIXES:
            unread.append(file)
    return unread


def in_blocks(pairs: Iterable[tuple[Any, Any]], place: str) -> dict[str, Any]:
    """Keys, which may be dotted, and their values as blocks.

    Args:
        place: where they stand, for errors.

    Raises:
        InputError: a key set twice, or both as a whole and in part.
    """
    pairs = list(pairs)
    paths = [path for pair in pairs for path, _ in _leaves(dict([pair]))]
    names = sorted(".".join(map(str, path)).split(".") for path in paths)
    for one, other in pairwise(names):
        if other[: len(one)] == one:
            also = "twice" if one == other else f"and {'.'.join(other)} as well"
            raise InputError(place, ".".join(one), f"is set {also}; keep one")
    return _nested(dict(pairs))


def _less_emptied(content: Mapping[str, Any], block: type[Block]) -> dict[str, Any]:
    """What is left of a block in which each key has been commented out is null."""
    kept = {}
    for key, value in content.items():
        kind = block.model_fields[key].annotation if key in block.model_fields else None
        if is_block(kind):
            if value is None:
                continue
            value = _less_emptied(value, kind) if isinstance(value, Mapping) else value
        kept[key] = value
    return kept


def _leaves(content: Mapping[str, Any], keys: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*keys, key))
        else:
            yield (*keys, key), value


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
    first, *others = error.errors()
    if first["type"] == "missing":  # a key that is not known may be meant for it
        first = next((each for each in others if each["type"] == "extra_forbidden"), first)
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
    """Of the block at a place, of which names in a mapping and numbers in a list are parts, too."""
    for part in location:
        if str(part) in block.model_fields:
            block = _block_in(block.model_fields[str(part)].annotation) or block
    return sorted(block.model_fields)


def _block_in(kind: Any) -> type[BaseModel] | None:
    """The block that a key holds, or holds several of."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next((found for part in get_args(kind) if (found := _block_in(part))), None)


def _dotted_keys(block: type[BaseModel], prefix: str) -> Iterator[str]:
    """Of a block and of all blocks inside it, its own key before them."""
    for name, field in block.model_fields.items():
        key, kind = f"{prefix}.{name}" if prefix else name, field.annotation
        yield key
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _dotted_keys(kind, key)
