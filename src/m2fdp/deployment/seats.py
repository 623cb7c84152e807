"""Messages in parts, and the seats of a parent's children; nothing of any network."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

from m2fdp.deployment.config import DeploymentConfig
from m2fdp.deployment.links import BadMessageError, End
from m2fdp.deployment.status import Line

# A number that no question has.
NONE = -1


@dataclass(eq=False)
class Message:
    """A message of at most so many bytes, as its parts come."""

    most: int
    content: bytearray = field(default_factory=bytearray)

    def take(self, part: bytes) -> bytes | None:
        """Add a part; the message's letter, once it is whole."""
        if len(self.content) + len(part) - 1 > self.most:
            raise BadMessageError(f"more than the {self.most} bytes that the plan has for it")
        self.content += memoryview(part)[1:]
        return None if part[:1] == b"C" else part[:1]


def cut(letter: bytes, content: bytes, size: int) -> list[bytes]:
    """A message in parts, of so many bytes of content each."""
    starts = range(0, max(len(content), 1), size)
    return [
        (b"C" if start + size < len(content) else letter)
        + memoryview(content)[start : start + size]
        for start in starts
    ]


@dataclass(eq=False)
class Seat:
    """A child, there or not, and what it is asked."""

    name: str
    changed: Condition = field(default_factory=Condition)
    number: int = NONE  # the question's; `NONE` = nothing is asked
    question: list[bytes] = field(default_factory=list)
    context: Any = None  # the connection that counts, the latest
    certificate: bytes = b""
    taken: int = NONE  # the last question that was sent to it
    idle: bool = False  # whether it is there and owes no answer
    away: str | None = None  # why the connection counts no more
    late: bool = False  # that a question was done without it, and none was answered since
    # A part of the answer that nobody has taken yet, with its connection; one at most.
    inbox: list[tuple[Any, bytes]] = field(default_factory=list)
    ended: End | None = None  # once it is
    told: bool = False  # that the child has kept the end
    quiet: float = 0.0  # until when no line tells that it comes and goes

    @property
    def is_there(self) -> bool:
        return self.context is not None and self.away is None

    def take(self, context: Any, certificate: bytes) -> None:
        """A process of the child's is there; one that was there before is sent away."""
        with self.changed:
            if self.context is not None:
                # Before its thread wakes: a stream that ends looks like a parent who will be back.
                self.context.cancel()
            self.context, self.certificate = context, certificate
            self.idle, self.away = False, None
            self.inbox.clear()
            self.changed.notify_all()

    def leave(self, context: Any) -> bool:
        """A connection is over; whether it was the one that counts."""
        with self.changed:
            counts = self.context is context
            if counts:
                self.context, self.idle = None, False
            self.changed.notify_all()
            return counts

    def presence(self) -> Line:
        """That it has come, or gone; of one that comes and goes all the time not each line."""
        line, now = f"{self.name} is {'there' if self.is_there else 'gone'}", time.monotonic()
        if now < self.quiet or self.ended is not None:
            line = ""
        else:
            self.quiet = now + DeploymentConfig.keepalive_s
        about = {"child": self.name, "there": self.is_there, "certificate": self.certificate}
        return Line(line, "child", "info", **about)

    def dismiss(self, context: Any, reason: str) -> None:
        """Of that connection nothing is taken any more."""
        with self.changed:
            if self.context is context:
                self.away = reason
            self.changed.notify_all()

    def ask(self, number: int, question: list[bytes]) -> None:
        with self.changed:
            self.number, self.question = number, question
            # Who has not come back by now has no question to be waited for.
            self.late = self.late and not self.idle
            self.inbox.clear()
            self.changed.notify_all()

    def next_question(self, context: Any, done: int) -> tuple[int, list[bytes]] | None:
        """The question after one, once there is one; None where there will be none."""
        with self.changed:

            def is_over() -> bool:
                return self._is_past(context) or self.ended is not None

            if not self._is_past(context):
                self.idle = True
            self.changed.wait_for(lambda: is_over() or self.number not in (done, NONE))
            if is_over():
                return None
            self.idle, self.taken = False, self.number
            return self.number, self.question

    def put(self, context: Any, number: int, part: bytes) -> bool:
        """A part of an answer, until it is taken: before that no other is read. Of a question that
        no longer stands, nobody takes any. Whether the connection still counts."""
        with self.changed:

            def stands() -> bool:
                return not self._is_past(context) and self.number == number

            if stands():
                self.inbox.append((context, part))
                self.changed.notify_all()
            self.changed.wait_for(lambda: not stands() or not self.inbox)
            return not self._is_past(context)

    def get(self, seconds: float) -> tuple[Any, bytes] | None:
        """The next part, or None where there is none in time, or none to wait for."""
        with self.changed:

            def is_gone() -> bool:
                return self.late and self.taken != self.number

            self.changed.wait_for(lambda: bool(self.inbox) or is_gone(), seconds)
            if not self.inbox:
                return None
            self.changed.notify_all()
            return self.inbox.pop()

    def hear(self) -> None:
        """The child has kept the end."""
        with self.changed:
            self.told = True
            self.changed.notify_all()

    def end(self, ended: End | None) -> None:
        with self.changed:
            self.ended, self.number = ended, NONE
            self.changed.notify_all()

    def _is_past(self, context: Any) -> bool:
        return self.context is not context or self.away is not None
