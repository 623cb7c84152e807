"""Links over gRPC: a child dials its parent and keeps one stream, on which the parent asks.

One method, `/m2fdp.Tree/Join`. A message is a letter and a content. A long content is cut: its last
part has the letter, those before it have C.

| letter | sent by | content |
|---|---|---|
| H | child | SHA-256 of its plan, and the version of these messages |
| Q | parent | a question: its head and its content |
| A | child | SHA-256 of the question, the length of a statement, the statement, the answer |
| R | child | SHA-256 of the question, the reason why it is not answered |
| E, X | parent | that the run is over, or that the child is refused, and why |
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Condition
from typing import Any

# Of the ciphers before TLS 1.3 one is left that needs a key which nobody has here; those of TLS 1.3
# are not chosen by this. gRPC reads it when it is imported, and whether it prints lines of its own.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_SSL_CIPHER_SUITES", "ECDHE-PSK-AES128-CBC-SHA")

import grpc  # noqa: E402

from m2fdp.core.errors import InputError  # noqa: E402
from m2fdp.deployment.config import DeploymentConfig
from m2fdp.deployment.keys import Identity  # noqa: E402
from m2fdp.deployment.links import Answer, Missing, Question, Refusal, Reply, Tell

_METHOD = "/m2fdp.Tree/Join"
_VERSION = b"2"
# Bytes of a digest.
_DIGEST = 32
# Bytes of a message that are on their way at a time.
_LOOKAHEAD = 2**18
# So many seconds a parent stays, at the end of a run, for children that are not there.
_FAREWELL = 10.0
# Between two attempts to reach a parent that is not there, seconds.
_RETRY = 0.5
# A number that no question has.
_NONE = -1


@dataclass
class Traffic:
    """What a node has sent and received, in bytes of messages."""

    sent: int = 0
    received: int = 0


def _parts(letter: bytes, content: bytes, size: int) -> list[bytes]:
    """A message in parts, of so many bytes of content each."""
    starts = range(0, max(len(content), 1), size)
    return [
        (b"C" if start + size < len(content) else letter)
        + memoryview(content)[start : start + size]
        for start in starts
    ]


def _options(settings: DeploymentConfig) -> list[tuple[str, Any]]:
    """Both ends have the same limits."""
    keepalive = int(1000 * settings.keepalive_s)
    return [
        ("grpc.keepalive_time_ms", keepalive),
        ("grpc.keepalive_timeout_ms", keepalive),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", keepalive // 2),
        ("grpc.http2.max_ping_strikes", 0),  # peers are known, and measure how fast a line is
        # What children send ahead of their turn waits with them: no window grows by itself.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _LOOKAHEAD),
        ("grpc.max_receive_message_length", settings.chunk_bytes + 2**16),
        ("grpc.so_reuseport", 0),
    ]


@dataclass(eq=False)
class _Seat:
    """A child, there or not, and what it is asked."""

    name: str
    changed: Condition = field(default_factory=Condition)
    number: int = _NONE  # the question's; `_NONE` = nothing is asked
    question: list[bytes] = field(default_factory=list)
    context: Any = None  # the connection that counts, the latest
    certificate: bytes = b""
    # A part of the answer that nobody has taken yet, with its connection; one at most.
    inbox: list[tuple[Any, bytes]] = field(default_factory=list)
    ended: str | None = None  # why the run is over, once it is
    told: bool = False  # that it is

    def take(self, context: Any, certificate: bytes) -> None:
        """A process of the child's is there; one that was there before is sent away."""
        with self.changed:
            if self.context is not None:
                # Before its thread wakes: a stream that ends looks like a parent who will be back.
                self.context.cancel()
            self.context, self.certificate = context, certificate
            self.inbox.clear()
            self.changed.notify_all()

    def leave(self, context: Any) -> None:
        with self.changed:
            if self.context is context:
                self.context, self.told = None, self.ended is not None
            self.changed.notify_all()

    def ask(self, number: int, question: list[bytes]) -> None:
        with self.changed:
            self.number, self.question = number, question
            self.inbox.clear()
            self.changed.notify_all()

    def next_question(self, context: Any, done: int) -> tuple[int, list[bytes]] | None:
        """The question after one, once there is one; None where there will be none."""
        with self.changed:

            def is_over() -> bool:
                return self.context is not context or self.ended is not None

            self.changed.wait_for(lambda: is_over() or self.number not in (done, _NONE))
            return None if is_over() else (self.number, self.question)

    def put(self, context: Any, number: int, part: bytes) -> None:
        """A part of an answer, until it is taken: before that no other is read. Of a question that
        no longer stands, nobody takes any."""
        with self.changed:

            def stands() -> bool:
                return self.context is context and self.number == number

            if stands():
                self.inbox.append((context, part))
                self.changed.notify_all()
            self.changed.wait_for(lambda: not stands() or not self.inbox)

    def get(self, seconds: float) -> tuple[Any, bytes] | None:
        """The next part, or None where there is none in time."""
        with self.changed:
            if not self.changed.wait_for(lambda: bool(self.inbox), seconds):
                return None
            self.changed.notify_all()
            return self.inbox.pop()

    def end(self, reason: str | None) -> None:
        """The run is over, if there is a reason."""
        with self.changed:
            self.ended, self.number = reason, _NONE
            self.changed.notify_all()


class GrpcLinks:
    """A parent's end (`Links`): a server that its children, in the tree's order, dial. `check` says
    what is wrong with the statement of an answer, by child and its certificate."""

    def __init__(
        self,
        children: tuple[str, ...],
        address: str,
        identity: Identity,
        plan: bytes,
        settings: DeploymentConfig,
        check: Callable[[str, bytes, Question, Answer], str | None],
        tell: Tell,
    ) -> None:
        self._seats = {name: _Seat(name) for name in children}
        self._plan, self._settings, self._check, self._tell = plan, settings, check, tell
        self.traffic, self._asked, self.farewell_s = Traffic(), 0, _FAREWELL
        threads = ThreadPoolExecutor(len(children) + 4, thread_name_prefix="child")
        self._server = grpc.server(threads, options=_options(settings))
        handler = grpc.stream_stream_rpc_method_handler(self._join)
        service, _, method = _METHOD.strip("/").partition("/")
        generic = grpc.method_handlers_generic_handler(service, {method: handler})
        self._server.add_generic_rpc_handlers((generic,))
        pair = [(identity.key, identity.certificate)]
        credentials = grpc.ssl_server_credentials(pair, identity.authority, True)
        try:
            self._server.add_secure_port(address, credentials)
        except RuntimeError:
            problem = "can't be listened at: it is in use, or not this host's"
            raise InputError(f"plan: servers.{identity.name}", address, problem) from None
        self._server.start()

    def ask(self, questions: Sequence[Question | None]) -> Iterator[Reply]:
        """See `Links`. A part of each child's answer waits here, and the rest at the child."""
        self._asked, asked = self._asked + 1, time.monotonic()
        size = self._settings.chunk_bytes
        pairs = [(s, q) for s, q in zip(self._seats.values(), questions, strict=True) if q]
        # What several are asked is held once.
        parts = {q: _parts(b"Q", q.head() + q.content, size) for q in {q for _, q in pairs}}
        for seat, question in pairs:
            seat.ask(self._asked, parts[question])
        for seat, question in pairs:
            yield self._reply(seat, question, asked)
            seat.ask(_NONE, [])

    def end(self, reason: str | None) -> None:
        """Tell all children that the run is over; None = that it is not, and this node will be
        back. They have a while to hear it, those too that have yet to come."""
        for seat in self._seats.values():
            seat.end(reason)
        deadline = time.monotonic() + (0 if reason is None else self.farewell_s)
        for seat in self._seats.values():
            with seat.changed:
                while not seat.told and time.monotonic() < deadline:
                    seat.changed.wait(deadline - time.monotonic())
        self._server.stop(0 if reason is None else 0.2).wait()

    def _reply(self, seat: _Seat, question: Question, asked: float) -> Reply:
        """What one child replies, however often it has to begin anew."""
        patience, told, heard = self._settings.patience_s, 0, asked
        content, context = bytearray(), None
        while True:
            waited = time.monotonic() - heard
            got = seat.get(max(patience * (told + 1) - waited, 0.0))
            if got is None:
                told += 1
                there = "is there, and has not answered" if seat.context else "is not there"
                line = f"{seat.name} {there} after {patience * told:g} s"
                if self._settings.on_missing == "stop":
                    return Refusal(seat.name, f"{line} (deployment.on_missing: stop)")
                if self._settings.on_missing == "skip":
                    return Missing(seat.name)
                self._tell(f"{line}; waiting")
                continue
            heard, told = time.monotonic(), 0
            if got[0] is not context:
                content, context = bytearray(), got[0]
            content += memoryview(got[1])[1:]
            if (letter := got[1][:1]) != b"C":
                return self._read(seat, question, letter, content)

    def _read(self, seat: _Seat, question: Question, letter: bytes, content: bytearray) -> Reply:
        """The reply that a child's message is."""
        if content[:_DIGEST] != question.digest or letter not in (b"A", b"R"):
            return Refusal(seat.name, "has sent what is no answer to this question")
        if letter == b"R":
            return Refusal(seat.name, content[_DIGEST:].decode(errors="replace"))
        answer = Answer.unpacked(memoryview(content)[_DIGEST:])
        fault = self._check(seat.name, seat.certificate, question, answer)
        return answer if fault is None else Refusal(seat.name, f"its statement {fault}")

    def _join(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """A child's stream, in a thread of its own."""
        auth = context.auth_context()
        name = auth.get("x509_common_name", [b"?"])[0].decode()
        seat, hello = self._seats.get(name), next(messages, b"")
        if seat is None:
            yield b"X" + f"{name} is no child of this node in its plan".encode()
            return
        if hello != b"H" + self._plan + _VERSION:
            another = "version of m2fdp" if hello == b"H" + self._plan else "plan"
            yield b"X" + f"it has another {another} than this node".encode()
            return
        context.add_callback(lambda: seat.leave(context))
        seat.take(context, auth["x509_pem_cert"][0])
        done = _NONE
        try:
            while (asked := seat.next_question(context, done)) is not None:
                done, parts = asked
                for part in parts:
                    self.traffic.sent += len(part)
                    yield part
                for message in messages:
                    self.traffic.received += len(message)
                    seat.put(context, done, message)
                    if message[:1] != b"C":
                        break
                else:
                    return
            if seat.ended is not None:
                yield b"E" + seat.ended.encode()
        except grpc.RpcError:  # the child is gone; it or another process of its name will be back
            return


class GrpcLink:
    """A child's end: it dials, and answers until the run is over. The parent's certificate must
    have its name."""

    def __init__(
        self, parent: str, address: str, identity: Identity, plan: bytes, settings: DeploymentConfig
    ) -> None:
        self.parent, self.address, self._plan, self._settings = parent, address, plan, settings
        self.traffic = Traffic()
        pems = identity.authority, identity.key, identity.certificate
        credentials = grpc.ssl_channel_credentials(*pems)
        options = [
            *_options(settings),
            ("grpc.ssl_target_name_override", parent),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.min_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        self._channel = grpc.secure_channel(address, credentials, options)
        self._join = self._channel.stream_stream(_METHOD)

    def serve(self, answer: Callable[[Question], Answer | Refusal], tell: Tell) -> str:
        """Answer the parent's questions, whenever it is there; why the run is over. A parent that
        is not who it should be, or does not take this node, is an `InputError`."""
        waiting = False
        while True:
            try:
                for ended in self._session(answer):
                    if ended is not None:
                        return ended
                    if waiting:
                        tell(f"{self.parent} is back")
                        waiting = False
            except grpc.RpcError as error:
                self._refuse(error)
            if not waiting:
                tell(f"{self.parent} is not there ({self.address}); waiting for it")
                waiting = True
            time.sleep(_RETRY)

    def close(self) -> None:
        self._channel.close()

    def _session(self, answer: Callable[[Question], Answer | Refusal]) -> Iterator[str | None]:
        """One connection: None at each question, the reason at the end."""
        outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        outgoing.put(b"H" + self._plan + _VERSION)
        call = self._join(iter(outgoing.get, None))
        content = bytearray()
        try:
            for message in call:
                self.traffic.received += len(message)
                content += memoryview(message)[1:]
                letter = message[:1]
                if letter == b"C":
                    continue
                if letter == b"E":
                    yield content.decode()
                    return
                if letter == b"X":
                    raise InputError("--as", self.parent, f"refuses this node: {content.decode()}")
                try:
                    question, content = Question.read(bytes(content)), bytearray()
                except ValueError as error:
                    raise InputError("--as", self.parent, f"has sent {error}") from None
                yield None
                for part in self._reply(answer(question), question.digest):
                    self.traffic.sent += len(part)
                    outgoing.put(part)
        finally:
            outgoing.put(None)
            call.cancel()

    def _reply(self, reply: Answer | Refusal, digest: bytes) -> list[bytes]:
        size = self._settings.chunk_bytes
        if isinstance(reply, Refusal):
            return _parts(b"R", digest + reply.reason.encode(), size)
        return _parts(b"A", digest + reply.packed(), size)

    def _refuse(self, error: Any) -> None:
        """End where waiting mends nothing."""
        details, code = str(error.details()), error.code()
        if code == grpc.StatusCode.CANCELLED:
            problem = "another process of this node's name has joined; a node is one process"
            raise InputError("--as", self.parent, problem) from None
        if "SSL_ERROR_SSL" in details or "ostname" in details:
            problem = f"at {self.address} shows no certificate of that name by this authority"
            raise InputError("--as", self.parent, problem) from None
