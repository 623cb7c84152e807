"""Keys that differ from their defaults and that nothing in a run reads.

Who reads a key is told beside its field (`READ_BY`). What comparisons of algorithms share, such as
the schedule, the trust and the target, has no reader: a baseline may leave some of it aside.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from m2fdp.core import own_code
from m2fdp.core.blocks import READ_BY, Block, marks_of
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.request import Request
from m2fdp.core.rooms import brought
from m2fdp.core.yaml_files import in_yaml

_EITHER, _PIPELINE = " | ", "the pipeline "


class Key(NamedTuple):
    """A key of a configuration.

    Attributes:
        name: dotted.
        readers: its own and those of its blocks; none = every run.
    """

    name: str
    value: Any
    default: Any
    readers: tuple[str, ...]


def in_words(reader: str) -> str:
    """The text of a reader as users see it."""
    return reader.replace(_EITHER, " or ")


def readers_of(field: FieldInfo) -> tuple[str, ...]:
    """The texts beside a field, or of the block that it is."""
    texts = marks_of(field).get(READ_BY, ())
    return (texts,) if isinstance(texts, str) else tuple(texts)


def keys_of(
    block: Block, usual: Block, prefix: str = "", readers: tuple[str, ...] = ()
) -> Iterator[Key]:
    """Every key of a block and of those inside it.

    Args:
        usual: the same block with its defaults.
        prefix: the block's own dotted name, with a dot at its end.
        readers: the block's own.
    """
    for name, field in type(block).model_fields.items():
        value, default = getattr(block, name), getattr(usual, name)
        every = (*readers, *readers_of(field))
        if isinstance(value, Block):
            yield from keys_of(value, default, f"{prefix}{name}.", every)
        else:
            yield Key(f"{prefix}{name}", value, default, every)


def refuse_idle(request: Request) -> None:
    """Refuse the first key that differs from its default and that nothing reads.

    Raises:
        InputError: naming it, its value, who reads it, and its default.
    """
    for key, reader in idle_keys(request):
        problem = (
            f"belongs to {in_words(reader)}, which this run is without; "
            f"leave it at {in_yaml(key.default)}"
        )
        raise InputError(key.name, key.value, problem)


def idle_keys(request: Request) -> Iterator[tuple[Key, str]]:
    """The keys that differ from their defaults and are read by nobody, with the reader that they
    lack."""
    for key in keys_of(request.config, Config()):
        if key.value != key.default:
            lacking = [reader for reader in key.readers if not reads(reader, request)]
            if lacking:
                yield key, lacking[0]


def read_keys(request: Request) -> frozenset[str]:
    """The keys that something in the run reads; all others have their defaults."""
    return frozenset(
        key.name
        for key in keys_of(request.config, Config())
        if all(reads(reader, request) for reader in key.readers)
    )


def reads(reader: str, request: Request) -> bool:
    """Whether a run has a reader, as `READ_BY` says."""
    if _EITHER in reader:
        return any(reads(each, request) for each in reader.split(_EITHER))
    if has := named_readers().get(reader):
        return has(request)
    if reader.startswith(_PIPELINE):
        return reader.removeprefix(_PIPELINE) in request.pipelines
    key, _, values = reader.partition(": ")
    value = request.value(key)
    if not values:
        return request.changed(key)
    return value in values.split(" or ") or (own_code.is_own(str(value)) and _is_handed(key, value))


@cache
def named_readers() -> Mapping[str, Callable[[Request], bool]]:
    """Readers that rooms name, and whether a run has them."""
    return {name: has for of_room in brought("readers") for name, has in of_room.items()}


def _is_handed(key: str, name: str) -> bool:
    """Whether code of the user's own, which a key names, takes the whole block."""
    match key:
        case "privacy.mechanism":
            return True
        case "dataset.name":
            return own_code.n_positional(own_code.load(key, name)) != 0
        case "partition.scheme":
            return own_code.n_positional(own_code.load(key, name)) == 5
    return False
