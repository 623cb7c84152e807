"""A parent's children, each with a seat: whom it asks, waits for, and tells of the end; nothing of
any network."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from m2fdp.deployment import keys, links
from m2fdp.deployment.config import DeploymentConfig
from m2fdp.deployment.keys import Identity
from m2fdp.deployment.links import Answer, End, Missing, Question, Refusal, Reply, Tell, shown
from m2fdp.deployment.seats import NONE, Message, Seat, cut
from m2fdp.deployment.status import Line

# Bytes of a digest; of a message beside what it holds: a head, or digest and statement.
DIGEST, AROUND = 32, 2**12
# So many seconds a parent stays at least, when a run ends, for children that are not there.
_FAREWELL = 10.0
# The share of its patience that a parent gives to its children's turns, once it has run out.
_TURN = 0.25


@dataclass(eq=False)
class Children:
    """Children in the tree's order.

    A child that sends anything but an answer is sent away. Under `on_missing: wait` it is waited
    for, else that is its refusal.
    """

    names: tuple[str, ...]
    identity: Identity
    settings: DeploymentConfig
    most: int  # bytes that no answer is longer than
    check: Callable[[str, bytes, Question, Answer], str | None]  # by child and certificate: a fault
    tell: Tell

    def __post_init__(self) -> None:
        self._seats = {name: Seat(name) for name in self.names}
        self._asked, self._heeded = 0, self.identity.number
        self.farewell_s = max(_FAREWELL, self.settings.patience_s)
        # Connections that have come to no stream, and so many of them a line has told of.
        self._strange, self._strange_told = 0, 0

    def ask(self, questions: Sequence[Question | None]) -> Iterator[Reply]:
        """See `Links`. A part of each child's answer waits here, and the rest at the child."""
        self._asked, asked = self._asked + 1, time.monotonic()
        self.identity.heed(self.tell)
        heeded, self._heeded = self._heeded, self.identity.number
        for seat in self._seats.values() if heeded != self._heeded else ():
            if seat.is_there and (wrong := self.identity.fault(seat.certificate, seat.name)):
                reason = f"{seat.name}'s certificate {wrong}"
                about = f"{reason}; it is sent away", "sent away", "warning"
                self.tell(Line(*about, child=seat.name, reason=reason))
                seat.dismiss(seat.context, reason)
        size = self.settings.chunk_bytes
        pairs = [(s, q) for s, q in zip(self._seats.values(), questions, strict=True) if q]
        # What several are asked is held once.
        parts = {q: cut(b"Q", q.head() + q.content, size) for q in {q for _, q in pairs}}
        for seat, question in pairs:
            seat.ask(self._asked, parts[question])
        self.tell(Line("", "works"))
        for seat, question in pairs:
            reply = self._reply(seat, question, asked)
            if not isinstance(reply, Answer):
                why = reply.reason if isinstance(reply, Refusal) else "no answer in time"
                self.tell(Line("", "refused", child=seat.name, reason=why))
            yield reply
            seat.ask(NONE, [])

    def end(self, ended: End | None, told: frozenset[str] = frozenset()) -> frozenset[str]:
        """Tell all children of the end, but who was told before; None = there is none, and this
        node will be back. They have a while to hear it, those too that have yet to come. It returns
        who knows."""
        for seat in self._seats.values():
            seat.end(ended)
            seat.told |= seat.name in told
        stays = 0.0 if ended is None else self.farewell_s if ended.over else _FAREWELL
        deadline = time.monotonic() + min(stays, self.farewell_s)
        for seat in self._seats.values():
            with seat.changed:
                while not seat.told and time.monotonic() < deadline:
                    seat.changed.wait(deadline - time.monotonic())
        told = frozenset(name for name, seat in self._seats.items() if seat.told)
        missed = [name for name in self._seats if name not in told]
        if ended is not None and ended.over and missed:
            self.tell(f"{', '.join(missed)}: not told yet; start this node again to tell them")
        return told

    def _reply(self, seat: Seat, question: Question, asked: float) -> Reply:
        """What one child replies, however often it has to begin anew. All of it must be there by
        the deadline; where others have used it up, shortly after it is this child's turn."""
        patience, mode, told = self.settings.patience_s, self.settings.on_missing, 1
        start = max(asked, time.monotonic() - patience * (1 - _TURN / len(self._seats)))
        message, context, quiet = Message(self.most + AROUND), None, 0.0
        while True:
            got = seat.get(max(start + patience * told - time.monotonic(), 0.0))
            if got is None:
                if mode == "skip":
                    seat.late = True
                    return Missing(seat.name)
                there = "is there, and has not answered" if seat.is_there else "is not there"
                line = f"{seat.name} {there} after {patience * told:g} s"
                if mode == "stop":
                    return Refusal(seat.name, f"{line} (deployment.on_missing: stop)")
                self.tell(Line(f"{line}; waiting{self._strangers()}", "waiting", "warning"))
                told += 1
                continue
            if got[0] is not context:
                message, context = Message(self.most + AROUND), got[0]
            try:
                letter = message.take(got[1])
                if letter is not None:
                    reply = self._read(seat, question, letter, message.content)
                    seat.late = False
                    return reply
            except links.BadMessageError as error:
                reason = shown(str(error))
                seat.dismiss(context, reason)
                seat.late = mode == "skip"
                if mode != "wait":
                    return Refusal(seat.name, reason)
                if time.monotonic() > quiet:  # who is sent away may be back at once
                    about = f"{seat.name} is sent away: {reason}; waiting", "sent away", "warning"
                    self.tell(Line(*about, child=seat.name, reason=reason))
                    quiet = time.monotonic() + self.settings.keepalive_s

    def _refused(self, seat: Seat, certificate: bytes) -> str | None:
        """Why a child's certificate is not taken; None = it is."""
        self.identity.heed(self.tell)
        if (wrong := self.identity.fault(certificate, seat.name)) is not None:
            return f"{seat.name}'s certificate {wrong}"
        if not seat.certificate or keys.same(seat.certificate, certificate):
            return None
        if seat.is_there:
            return f"{seat.name} is here with another key; a node has one at a time"
        newer = keys.issued(certificate) >= keys.issued(seat.certificate)
        return None if newer else f"{seat.name} has a newer key than this one"

    def _count(self, number: int) -> None:
        self._strange += number
        self.tell(Line("", "strangers", count=self._strange))

    def _strangers(self) -> str:
        count, self._strange_told = self._strange - self._strange_told, self._strange
        if count <= 0:
            return ""
        return f"; connections without a certificate that is taken, or without TLS: {count}"

    def _read(self, seat: Seat, question: Question, letter: bytes, content: bytearray) -> Reply:
        """The reply that a child's message is."""
        if content[:DIGEST] != question.digest or letter not in (b"A", b"R"):
            raise links.BadMessageError("it has sent what is no answer to this question")
        if letter == b"R":
            return Refusal(seat.name, shown(bytes(content[DIGEST:])))
        answer = Answer.unpacked(memoryview(content)[DIGEST:])
        fault = self.check(seat.name, seat.certificate, question, answer)
        if fault is not None:
            raise links.BadMessageError(fault)
        return answer
