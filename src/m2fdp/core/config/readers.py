"""Who reads a key that only some runs read: the texts beside the fields (`READ_BY`).

A text is a name that a room knows (`Room.readers`), `key: value or value` (the other key has one of
these values), or `key` alone (the other key is changed from its default). Of several all must be
true. What comparisons of algorithms share, such as the schedule, the trust and the target, has no
reader: a baseline may leave some of it aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from m2fdp.core.blocks import READ_BY, Block, marks_of

IN_TIERS = "algorithms that train in tiers"
SPLITTING = "algorithm: m2fdp_tiers"
PAPERS_NOISE = "J's noise (privacy.calibration: paper, control.gap: papers) and the pipeline bound"


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
