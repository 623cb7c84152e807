"""What nodes say to each other, and the contracts of who carries it; nothing of any network."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Literal, Protocol

import torch
from torch import Tensor

# A model after local steps; the gradient of one local step, weighed for the head that adds it; or a
# step of a sum that hides its terms, to which the model is put in as masked words.
Kind = Literal["model", "gradient", "keys", "shares", "masked", "survivors", "unmasking"]
STEPS: tuple[Kind, ...] = ("keys", "shares", "masked", "survivors", "unmasking")
_KINDS: tuple[Kind, ...] = ("model", "gradient", *STEPS)
Tell = Callable[[str], None]
# Characters of a line that are another node's.
_LINE = 400
# Plan digest, round, first and last step, kind, and how many bytes follow.
_PLACE = struct.Struct("<32sIIIBQ")


class BadMessageError(ValueError):
    """What another node has sent is not what the plan has it send; the text is what it is."""


@dataclass(frozen=True)
class Place:
    """Where in a run a question stands: local steps `first` to `last` of a round, from 1."""

    round: int
    first: int
    last: int
    kind: Kind

    @property
    def position(self) -> tuple[int, int, int]:
        """Grows in the order in which a node is asked."""
        return self.round, self.first, _KINDS.index(self.kind)

    @property
    def begins(self) -> bool:
        """Whether the question is a model to start from."""
        return self.kind in ("model", "gradient", "keys")

    @property
    def gives(self) -> bool:
        """Whether the answer holds what records have made, with the node's noise."""
        return self.kind in ("model", "gradient", "masked")

    def __str__(self) -> str:
        return f"round {self.round}, steps {self.first} to {self.last}, {self.kind}"


@dataclass(frozen=True, eq=False)
class Question:
    """What a parent asks a child. Its content is the model to start from, as `to_bytes` has it.
    After the first step of a sum that hides its terms, `masked_messages` makes it."""

    plan: bytes  # SHA-256 of it
    place: Place
    content: bytes

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        return sha256(self.head() + self.content).digest()

    @cached_property
    def vector(self) -> Tensor:
        """(1, M), the model to start from; a `ValueError` where it is none."""
        return from_bytes(self.content)

    def head(self) -> bytes:
        """All but the content."""
        at = self.place
        kind, size = _KINDS.index(at.kind), len(self.content)
        return _PLACE.pack(self.plan, at.round, at.first, at.last, kind, size)

    @staticmethod
    def announced(start: bytes) -> int:
        """How many bytes its content has, as its first part says; a `BadMessageError` where it is
        no part of a question."""
        if len(start) < _PLACE.size:
            raise BadMessageError("what is no question")
        return int(_PLACE.unpack_from(start)[-1])

    @classmethod
    def read(cls, written: bytes) -> Question:
        """The question that its head and its content are, one after the other; a `BadMessageError`
        where they are none."""
        try:
            plan, round_, first, last, kind, size = _PLACE.unpack_from(written)
            question = cls(plan, Place(round_, first, last, _KINDS[kind]), written[_PLACE.size :])
        except (struct.error, IndexError):
            raise BadMessageError("what is no question") from None
        if len(question.content) != size:
            raise BadMessageError("what is no whole question")
        return question

    def of(self, place: Place, vector: Tensor) -> Question:
        """Another question under the same plan."""
        return Question(self.plan, place, to_bytes(vector))


@dataclass(frozen=True, eq=False)
class Answer:
    """What a child answers: the vector (1, M), as `to_bytes` has it, or what `masked_messages`
    makes; with its signed line, UTF-8."""

    content: bytes
    statement: bytes

    @property
    def vector(self) -> Tensor:
        return from_bytes(self.content)

    def packed(self) -> bytes:
        return len(self.statement).to_bytes(4, "little") + self.statement + self.content

    @classmethod
    def unpacked(cls, written: bytes | memoryview) -> Answer:
        end = 4 + int.from_bytes(written[:4], "little")
        return cls(bytes(written[end:]), bytes(written[4:end]))


@dataclass(frozen=True)
class Refusal:
    """That a node does not answer, and why, in a line."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node} refuses: {self.reason}"


@dataclass(frozen=True)
class Missing:
    """That a child has not answered in time."""

    node: str


Reply = Answer | Refusal | Missing


@dataclass(frozen=True)
class End:
    """Why nobody asks any more: the run is over, or it is stopped, and nodes that are started again
    go on with it."""

    reason: str
    over: bool


class Links(Protocol):
    """To all children of a node, in the tree's order."""

    def ask(self, questions: Sequence[Question | None]) -> Iterator[Reply]:
        """Ask all at once; what they reply, in the tree's order, each as soon as it is its turn,
        so that one reply is held at a time. None = a child is not asked, and replies nothing."""


def shown(said: str | bytes) -> str:
    """What another node says, for a log: on one line, without what steers a terminal, and cut."""
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    line = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text[:_LINE]
    )
    return line if len(text) <= _LINE else f"{line} … ({len(text)} characters)"


def to_bytes(vector: Tensor) -> bytes:
    """A vector (1, M) as float32, little endian."""
    return bytes(vector.contiguous().numpy().astype("<f4", copy=False).data)


def from_bytes(content: bytes) -> Tensor:
    """The vector (1, M), in memory of its own; a `ValueError` where they are none."""
    return torch.frombuffer(bytearray(content), dtype=torch.float32)[None]
