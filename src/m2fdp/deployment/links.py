"""What nodes say to each other, and the contracts of who carries it; nothing of any network."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal, Protocol

import torch
from torch import Tensor

# A model after local steps, or the gradient of one local step, weighed for the head that adds it.
Kind = Literal["model", "gradient"]
_KINDS: tuple[Kind, ...] = ("model", "gradient")
# Plan digest, round, first and last step, kind.
_PLACE = struct.Struct("<32sIIIB")


@dataclass(frozen=True, order=True)
class Place:
    """Where in a run a question stands: local steps `first` to `last` of a round, from 1."""

    round: int
    first: int
    last: int
    kind: Kind

    def __str__(self) -> str:
        return f"round {self.round}, steps {self.first} to {self.last}, {self.kind}"


@dataclass(frozen=True, eq=False)
class Question:
    """What a parent asks each of its children.

    Attributes:
        plan: SHA-256 of the plan.
        vector: (1, M), the model to start from.
    """

    plan: bytes
    place: Place
    vector: Tensor

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        return sha256(self.head() + to_bytes(self.vector)).digest()

    def head(self) -> bytes:
        """All but the vector."""
        at = self.place
        return _PLACE.pack(self.plan, at.round, at.first, at.last, _KINDS.index(at.kind))

    def of(self, place: Place, vector: Tensor) -> Question:
        """Another question under the same plan."""
        return replace(self, place=place, vector=vector)


@dataclass(frozen=True, eq=False)
class Answer:
    """What a child answers.

    Attributes:
        content: the vector (1, M), as `to_bytes` has it.
        statement: its signed line, UTF-8.
    """

    content: bytes
    statement: bytes

    @property
    def vector(self) -> Tensor:
        """(1, M)."""
        return from_bytes(self.content)


@dataclass(frozen=True)
class Refusal:
    """That a node does not answer.

    Attributes:
        node: its name.
        reason: one line.
    """

    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node} refuses: {self.reason}"


@dataclass(frozen=True)
class Missing:
    """That a child has not answered in time."""

    node: str


Reply = Answer | Refusal | Missing


class Links(Protocol):
    """To all children of a node, in the tree's order."""

    def ask(self, question: Question) -> Iterator[Reply]:
        """Ask all at once; what they reply, in the tree's order, each as soon as it is its turn,
        so that one reply is held at a time."""

    def end(self, reason: str | None) -> None:
        """Tell all of them that the run is over; None = that it is not, and this node will be
        back."""


class Answering(Protocol):
    """What a node does with a question of its parent."""

    def answer(self, question: Question) -> Answer | Refusal:
        """The answer, which the node has kept before it gives it; or why there is none."""


@dataclass(frozen=True)
class LocalLinks:
    """Children in the same process, in order: what tests and attacks drive nodes with."""

    children: Sequence[Answering]

    def ask(self, question: Question) -> Iterator[Reply]:
        """What each of them replies."""
        for child in self.children:
            yield child.answer(question)

    def end(self, reason: str | None) -> None:
        """Nobody waits."""


def to_bytes(vector: Tensor) -> bytes:
    """A vector (1, M) as float32, little endian."""
    return bytes(vector.contiguous().numpy().astype("<f4", copy=False).data)


def from_bytes(content: bytes) -> Tensor:
    """The vector (1, M), in memory of its own.

    Raises:
        ValueError: bytes of no such vector.
    """
    return torch.frombuffer(bytearray(content), dtype=torch.float32)[None]


def read_head(head: bytes) -> tuple[bytes, Place]:
    """The plan's digest and the place, of the first `HEAD` bytes of a question.

    Raises:
        ValueError: bytes of no question.
    """
    try:
        plan, round_, first, last, kind = _PLACE.unpack(head)
        return plan, Place(round_, first, last, _KINDS[kind])
    except (struct.error, IndexError):
        raise ValueError("no question") from None


HEAD = _PLACE.size
