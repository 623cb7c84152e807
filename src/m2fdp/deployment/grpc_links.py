"""Links over gRPC: a child dials its parent and keeps one stream, on which the parent asks.

One method, `/m2fdp.Tree/Join`. With the call a child says, as `m2fdp-bin`, the SHA-256 of its plan
and the version of these messages. Whom its parent does not take is told so by the call's status,
before anything is read. A message is a letter and a content. A long content is cut: its last part
has the letter, those before it have C. No message is longer than the plan has it.

| letter | sent by | content |
|---|---|---|
| Q | parent | a question: its head and its content |
| E | child | nothing: it has kept that end |
| A | child | SHA-256 of the question, the length of a statement, the statement, the answer |
| R | child | SHA-256 of the question, the reason why it is not answered |
| E, S | parent | that the run is over, or stopped, and why |
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Timer
from typing import Any

# Of the ciphers before TLS 1.3 one is left that needs a key which nobody has here; those of TLS 1.3
# are not chosen by this. gRPC reads it when it is imported, and whether it prints lines of its own.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_SSL_CIPHER_SUITES", "ECDHE-PSK-AES128-CBC-SHA")

import grpc  # noqa: E402

from m2fdp.core.errors import InputError  # noqa: E402
from m2fdp.deployment import keys
from m2fdp.deployment.config import DeploymentConfig
from m2fdp.deployment.keys import Identity  # noqa: E402
from m2fdp.deployment.links import Answer, End, Missing, Question, Refusal, Reply, Tell, shown
from m2fdp.deployment.seats import NONE, BadMessageError, Message, Seat, cut
from m2fdp.deployment.status import Line

_METHOD = "/m2fdp.Tree/Join"
_HELLO = "m2fdp-bin"
_VERSION = b"3"
# Bytes of a digest.
_DIGEST = 32
# Bytes of a message that are on their way at a time.
_LOOKAHEAD = 2**16
# Bytes of a message beside what it holds: a head, or digest and statement.
_AROUND = 2**12
# Streams that one connection may have; seconds that one without any, or without TLS, is kept.
_STREAMS, _IDLE_S = 4, 20
# Lines on whom is not taken in that are told once each.
_LINES = 1000
# So many seconds a parent stays at least, when a run ends, for children that are not there.
_FAREWELL = 10.0
# Between two attempts to reach a parent that is not there, seconds.
_RETRY = 0.5
# So many seconds a child waits for its parent to hear that it knows the end.
_LEAVING_S = 5.0
# The share of its patience that a parent gives to its children's turns, once it has run out.
_TURN = 0.25
# What a parent does whose connection fails, by gRPC's words.
_TOLD = {
    "certificate has expired": "shows a certificate that has expired",
    "certificate is not yet valid": "shows a certificate that is not valid yet; see both clocks",
    "lookup": "has an address that is not found",
    "last error: UNAVAILABLE": "ends the connection; it may not take this node's certificate",
}
_REFUSED = grpc.StatusCode.PERMISSION_DENIED
# What to do about a parent that does not come.
_REMEDY = (
    "If its run is over, start it again with its state: it hands the end down. If it is gone for "
    "good, end this node (Ctrl-C); its state keeps what is spent"
)


@dataclass
class Traffic:
    """What a node has sent and received, in bytes of messages."""

    sent: int = 0
    received: int = 0


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
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.max_connection_idle_ms", 1000 * _IDLE_S),
        ("grpc.server_handshake_timeout_ms", 1000 * _IDLE_S),
    ]


class GrpcLinks:
    """A parent's end (`Links`): a server that its children, in the tree's order, dial. No answer is
    longer than `most` bytes. `check` says what is wrong with one, by child and its certificate.

    A child that sends anything else is sent away. Under `on_missing: wait` it is waited for, else
    that is its refusal.
    """

    def __init__(
        self,
        children: tuple[str, ...],
        address: str,
        identity: Identity,
        plan: bytes,
        settings: DeploymentConfig,
        most: int,
        check: Callable[[str, bytes, Question, Answer], str | None],
        tell: Tell,
    ) -> None:
        self._seats = {name: Seat(name) for name in children}
        self._plan, self._settings, self._check, self._tell = plan, settings, check, tell
        self._most, self._turned_away = most + _AROUND, set[str]()
        self.traffic, self._asked = Traffic(), 0
        self.farewell_s = max(_FAREWELL, settings.patience_s)
        # A stream that counts has one, and one that is sent away a while longer.
        threads = ThreadPoolExecutor(2 * len(children) + 4, thread_name_prefix="child")
        self._server = grpc.server(threads, options=_options(settings))
        handler = grpc.stream_stream_rpc_method_handler(self._join)
        service, _, method = _METHOD.strip("/").partition("/")
        generic = grpc.method_handlers_generic_handler(service, {method: handler})
        self._server.add_generic_rpc_handlers((generic,))
        pair = [(identity.key, identity.certificate)]
        shown_by_it = grpc.ssl_server_certificate_configuration(pair, identity.authority)
        # Connections that have come to no stream, and so many of them a line has told of.
        self._strange, self._strange_told = 0, 0
        credentials = grpc.dynamic_ssl_server_credentials(shown_by_it, self._connected, True)
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
        parts = {q: cut(b"Q", q.head() + q.content, size) for q in {q for _, q in pairs}}
        for seat, question in pairs:
            seat.ask(self._asked, parts[question])
        self._tell(Line("", "works"))
        for seat, question in pairs:
            reply = self._reply(seat, question, asked)
            if not isinstance(reply, Answer):
                why = reply.reason if isinstance(reply, Refusal) else "no answer in time"
                self._tell(Line("", "refused", child=seat.name, reason=why))
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
            self._tell(f"{', '.join(missed)}: not told yet; start this node again to tell them")
        self._server.stop(0 if ended is None else 0.2).wait()
        return told

    def _reply(self, seat: Seat, question: Question, asked: float) -> Reply:
        """What one child replies, however often it has to begin anew. All of it must be there by
        the deadline; where others have used it up, shortly after it is this child's turn."""
        patience, mode, told = self._settings.patience_s, self._settings.on_missing, 1
        start = max(asked, time.monotonic() - patience * (1 - _TURN / len(self._seats)))
        message, context, quiet = Message(self._most), None, 0.0
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
                self._tell(Line(f"{line}; waiting{self._strangers()}", "waiting", "warning"))
                told += 1
                continue
            if got[0] is not context:
                message, context = Message(self._most), got[0]
            try:
                letter = message.take(got[1])
                if letter is not None:
                    reply = self._read(seat, question, letter, message.content)
                    seat.late = False
                    return reply
            except BadMessageError as error:
                reason = shown(str(error))
                seat.dismiss(context, reason)
                seat.late = mode == "skip"
                if mode != "wait":
                    return Refusal(seat.name, reason)
                if time.monotonic() > quiet:  # who is sent away may be back at once
                    about = f"{seat.name} is sent away: {reason}; waiting", "sent away", "warning"
                    self._tell(Line(*about, child=seat.name, reason=reason))
                    quiet = time.monotonic() + self._settings.keepalive_s

    def _connected(self, number: int = 1) -> None:
        """Somebody has connected, and has yet to show who it is; gRPC tells of no refusal."""
        self._strange += number
        self._tell(Line("", "strangers", count=self._strange))

    def _strangers(self) -> str:
        count, self._strange_told = self._strange - self._strange_told, self._strange
        if count <= 0:
            return ""
        return f"; connections without a certificate that is taken, or without TLS: {count}"

    def _read(self, seat: Seat, question: Question, letter: bytes, content: bytearray) -> Reply:
        """The reply that a child's message is."""
        if content[:_DIGEST] != question.digest or letter not in (b"A", b"R"):
            raise BadMessageError("it has sent what is no answer to this question")
        if letter == b"R":
            return Refusal(seat.name, shown(bytes(content[_DIGEST:])))
        answer = Answer.unpacked(memoryview(content)[_DIGEST:])
        fault = self._check(seat.name, seat.certificate, question, answer)
        if fault is not None:
            raise BadMessageError(fault)
        return answer

    def _join(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """A child's stream, in a thread of its own, which nobody keeps who is not taken in."""
        self._connected(-1)
        auth, hello = context.auth_context(), dict(context.invocation_metadata()).get(_HELLO, b"")
        name = shown(auth.get("x509_common_name", [b"?"])[0])
        seat, wrong = self._seats.get(name), None
        if seat is None:
            wrong = f"{name} is no child of this node in its plan"
        elif hello != self._plan + _VERSION:
            another = "plan" if hello[_DIGEST:] == _VERSION else "version of m2fdp"
            wrong = f"{name} has another {another} than this node"
        if seat is None or wrong is not None:
            if wrong not in self._turned_away and len(self._turned_away) < _LINES:
                self._turned_away.add(str(wrong))
                line = f"{wrong}; it is not taken in"
                self._tell(Line(line, "turned away", "warning", child=name, reason=wrong))
            context.abort(_REFUSED, wrong)
            return
        context.add_callback(lambda: self._left(seat, context))
        seat.take(context, auth["x509_pem_cert"][0])
        context.send_initial_metadata(())  # it is taken in
        self._tell(seat.presence())
        done = NONE
        try:
            while (asked := seat.next_question(context, done)) is not None:
                done, parts = asked
                for part in parts:
                    self.traffic.sent += len(part)
                    yield part
                for message in messages:
                    self.traffic.received += len(message)
                    if not seat.put(context, done, message) or message[:1] != b"C":
                        break
                else:
                    return
            if seat.away is not None and seat.context is context:
                context.abort(_REFUSED, seat.away)
            if seat.ended is not None:
                yield (b"E" if seat.ended.over else b"S") + seat.ended.reason.encode()
                if next(messages, b"") == b"E":
                    seat.hear()
        except grpc.RpcError:  # the child is gone; it or another process of its name will be back
            return

    def _left(self, seat: Seat, context: Any) -> None:
        if seat.leave(context):
            self._tell(seat.presence())


class GrpcLink:
    """A child's end: it dials, and answers until the run is over. The parent's certificate must
    have its name, and no question is longer than `most` bytes."""

    def __init__(
        self,
        parent: str,
        address: str,
        identity: Identity,
        plan: bytes,
        settings: DeploymentConfig,
        most: int,
    ) -> None:
        self.parent, self.address, self._plan, self._settings = parent, address, plan, settings
        self.traffic, self._most, self._identity = Traffic(), most + _AROUND, identity
        pems = identity.authority, identity.key, identity.certificate
        credentials = grpc.ssl_channel_credentials(*pems)
        options = [
            *_options(settings),
            ("grpc.ssl_target_name_override", parent),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.min_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        self._gone = 0.0  # since when the parent is not there; 0 = it is
        self._channel = grpc.secure_channel(address, credentials, options)
        self._join = self._channel.stream_stream(_METHOD)

    def serve(
        self,
        answer: Callable[[Question], Answer | Refusal],
        tell: Tell,
        keep: Callable[[End], None] = lambda end: None,
    ) -> End:
        """Answer the parent's questions, whenever it is there, until the end, which is kept before
        the parent hears that it is known. A parent that is not who it should be, or does not take
        this node, is an `InputError`."""
        told, end, self._gone, said = "", None, time.monotonic(), False
        while True:
            try:
                for end in self._session(answer, tell):
                    if end is not None:
                        keep(end)
                    elif told:
                        tell(f"{self.parent} is back")
                        told = ""
                line = f"is not there ({self.address}); waiting for it"
            except grpc.RpcError as error:
                line = "" if end is not None else self._why(error)
            except BadMessageError as error:
                line = f"has sent {error}; its stream is closed, and tried again"
            if end is not None:
                return end
            said = said and self._gone > 0
            if not self._gone:
                self._gone = time.monotonic()
                tell(Line("", "parent", there=False))
            if line != told:
                tell(Line(f"{self.parent} {line}", "waiting", "warning"))
                told = line
            if not said and time.monotonic() - self._gone > (patience := self._settings.patience_s):
                said = True
                line = f"{self.parent} has not been there for {patience:g} s. {_REMEDY}"
                tell(Line(line, "waiting", "warning"))
            time.sleep(_RETRY)

    def close(self) -> None:
        self._channel.close()

    def _session(
        self, answer: Callable[[Question], Answer | Refusal], tell: Tell
    ) -> Iterator[End | None]:
        """One connection: None at each question, the end at last."""
        outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        call = self._join(iter(outgoing.get, None), metadata=((_HELLO, self._plan + _VERSION),))
        message = Message(self._most)
        try:
            call.initial_metadata()  # comes once the parent has taken this node in
            if call.is_active():
                self._gone = 0.0
                tell(Line("", "parent", there=True))
            for part in call:
                self.traffic.received += len(part)
                letter = self._taken(message, part)
                if letter is None:
                    continue
                content, message = bytes(message.content), Message(self._most)
                if letter in (b"E", b"S"):
                    yield End(shown(content), letter == b"E")
                    outgoing.put(b"E")
                    leaving = Timer(_LEAVING_S, call.cancel)
                    leaving.start()
                    try:
                        next(call, None)  # until the parent has closed the stream
                    finally:
                        leaving.cancel()
                    return
                question = _question(letter, content)
                yield None
                for each in self._reply(answer(question), question.digest):
                    self.traffic.sent += len(each)
                    outgoing.put(each)
        finally:
            outgoing.put(None)
            call.cancel()

    def _taken(self, message: Message, part: bytes) -> bytes | None:
        """The letter of a message that is whole; what it announces is looked at before."""
        if not message.content and part[:1] not in (b"E", b"S"):
            try:
                announced = Question.announced(part[1:])
            except ValueError as error:
                raise BadMessageError(str(error)) from None
            if announced > self._most:
                raise BadMessageError(
                    f"a question of {announced} bytes, where the plan has at most {self._most}"
                )
        return message.take(part)

    def _reply(self, reply: Answer | Refusal, digest: bytes) -> list[bytes]:
        size = self._settings.chunk_bytes
        if isinstance(reply, Refusal):
            return cut(b"R", digest + reply.reason.encode(), size)
        return cut(b"A", digest + reply.packed(), size)

    def _why(self, error: Any) -> str:
        """Why the parent is waited for; it ends where waiting mends nothing."""
        details, code = str(error.details()), error.code()
        if code == grpc.StatusCode.CANCELLED:
            problem = "another process of this node's name has joined; a node is one process"
            raise InputError("--as", self.parent, problem) from None
        if code == _REFUSED:
            raise InputError("--as", self.parent, f"refuses this node: {shown(details)}") from None
        line, own = "is not there", self._identity
        if (wrong := keys.fault(own.certificate, own.authority, own.name)) is not None:
            line += f", and this node's certificate {wrong}"
        elif (words := next((words for words in _TOLD if words in details), None)) is not None:
            line = _TOLD[words]
        elif "SSL_ERROR_SSL" in details or "Hostname Verification" in details:
            problem = f"at {self.address} shows no certificate of that name by this authority"
            raise InputError("--as", self.parent, problem) from None
        elif code != grpc.StatusCode.UNAVAILABLE:
            line = f"does not talk: {code.name}: {shown(details)}"
        return f"{line} ({self.address}); waiting for it"


def _question(letter: bytes, content: bytes) -> Question:
    try:
        if letter == b"Q":
            return Question.read(content)
    except ValueError as error:
        raise BadMessageError(str(error)) from None
    raise BadMessageError("what is no question")
