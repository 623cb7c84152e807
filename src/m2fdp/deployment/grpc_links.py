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
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
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
from m2fdp.deployment.children import AROUND, DIGEST, Children
from m2fdp.deployment.config import DeploymentConfig
from m2fdp.deployment.keys import Identity  # noqa: E402
from m2fdp.deployment.links import Answer, BadMessageError, End, Question, Refusal, Tell, shown
from m2fdp.deployment.seats import NONE, Message, Seat, cut
from m2fdp.deployment.status import Line

_METHOD = "/m2fdp.Tree/Join"
_HELLO = "m2fdp-bin"
_VERSION = b"4"
# With the call a child gives a number of its own. Its parent signs that, and to whom it talks, and
# shows its certificate: TLS tells a child nothing by which it knows one that was revoked.
_NONCE, _SHOWN, _SIGNED = "m2fdp-nonce-bin", "m2fdp-certificate-bin", "m2fdp-signature-bin"
# Bytes of a message that are on their way at a time.
_LOOKAHEAD = 2**16
# Streams that one connection may have; seconds that one without any, or without TLS, is kept.
_STREAMS, _IDLE_S = 4, 20
# Lines on whom is not taken in that are told once each.
_LINES = 1000
# Between two attempts to reach a parent that is not there, seconds.
_RETRY = 0.5
# So many seconds a child waits for its parent to hear that it knows the end.
_LEAVING_S = 5.0
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


@dataclass(eq=False)
class GrpcLinks(Children):
    """A parent's end (`Links`): a server that its children, in the tree's order, dial."""

    address: str
    plan: bytes  # its digest

    def __post_init__(self) -> None:
        super().__post_init__()
        self._turned_away, self.traffic = set[str](), Counter[str]()
        # A stream that counts has one, and one that is sent away a while longer.
        threads = ThreadPoolExecutor(2 * len(self.names) + 4, thread_name_prefix="child")
        self._server = grpc.server(threads, options=_options(self.settings))
        handler = grpc.stream_stream_rpc_method_handler(self._join)
        service, _, method = _METHOD.strip("/").partition("/")
        generic = grpc.method_handlers_generic_handler(service, {method: handler})
        self._server.add_generic_rpc_handlers((generic,))
        own, self._shown = self.identity, self.identity.certificate
        credentials = grpc.dynamic_ssl_server_credentials(_shown_by(own), self._connected, True)
        try:
            self._server.add_secure_port(self.address, credentials)
        except RuntimeError:
            problem = "can't be listened at: it is in use, or not this host's"
            raise InputError(f"plan: servers.{own.name}", self.address, problem) from None
        self._server.start()

    def end(self, ended: End | None, told: frozenset[str] = frozenset()) -> frozenset[str]:
        """See `Children`."""
        told = super().end(ended, told)
        self._server.stop(0 if ended is None else 0.2).wait()
        return told

    def _connected(self) -> Any:
        """Somebody has connected, and has yet to show who it is; gRPC tells of no refusal. It is
        shown this node's certificate, if that is a new one by now."""
        self._count(1)
        before, self._shown = self._shown, self.identity.certificate
        return None if before == self._shown else _shown_by(self.identity)

    def _join(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """A child's stream, in a thread of its own, which nobody keeps who is not taken in."""
        self._count(-1)
        auth, given = context.auth_context(), dict(context.invocation_metadata())
        certificate, hello = auth.get("x509_pem_cert", [b""])[0], given.get(_HELLO, b"")
        name = shown(auth.get("x509_common_name", [b"?"])[0])
        seat, wrong = self._seats.get(name), None
        if seat is None:
            wrong = f"{name} is no child of this node in its plan"
        elif hello != self.plan + _VERSION:
            another = "plan" if hello[DIGEST:] == _VERSION else "version of m2fdp"
            wrong = f"{name} has another {another} than this node"
        else:
            wrong = self._refused(seat, certificate)
        if seat is None or wrong is not None:
            if wrong not in self._turned_away and len(self._turned_away) < _LINES:
                self._turned_away.add(str(wrong))
                line = f"{wrong}; it is not taken in"
                self.tell(Line(line, "turned away", "warning", child=name, reason=wrong))
            context.abort(_REFUSED, wrong)
            return
        if seat.certificate not in (b"", certificate):
            self.tell(f"{name} shows a new certificate, valid until {keys.ends(certificate)}")
        signed = self.identity.sign(_greeting(given.get(_NONCE, b""), hello, certificate))
        own = (_SHOWN, self.identity.certificate), (_SIGNED, signed)
        context.add_callback(lambda: self._left(seat, context))
        seat.take(context, certificate)
        context.send_initial_metadata(own)  # it is taken in
        self.tell(seat.presence())
        done = NONE
        try:
            while (asked := seat.next_question(context, done)) is not None:
                done, parts = asked
                for part in parts:
                    self.traffic["sent"] += len(part)
                    yield part
                for message in messages:
                    self.traffic["received"] += len(message)
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
            self.tell(seat.presence())


@dataclass(eq=False)
class GrpcLink:
    """A child's end: it dials, and answers until the run is over. Traffic counts bytes of messages
    that are sent and received."""

    parent: str  # which its certificate must name
    address: str
    identity: Identity
    plan: bytes  # its digest
    settings: DeploymentConfig
    most: int  # bytes that no question is longer than
    waits: bool = False  # for a parent that has another plan, which it may be about to leave
    traffic: Counter[str] = field(default_factory=Counter)
    _shown: bytes = b""
    _gone: float = 0.0  # since when the parent is not there; 0 = it is

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        own = self.identity
        credentials = grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
        options = [
            *_options(self.settings),
            ("grpc.ssl_target_name_override", self.parent),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.min_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.use_local_subchannel_pool", 1),  # a new certificate, a new connection
        ]
        self._channel = grpc.secure_channel(self.address, credentials, options)
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
                if self.identity.renew(tell):
                    self._channel.close()
                    self._open()
                for end in self._session(answer, tell):
                    if end is not None:
                        keep(end)
                    elif told:
                        tell(f"{self.parent} is back")
                        told = ""
                line = f"is not there ({self.address}); waiting for it"
            except grpc.RpcError as error:
                line = "" if end is not None else self._why(error)
            except _RenewedError:
                continue
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
            if not said and time.monotonic() - self._gone > (patience := self.settings.patience_s):
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
        nonce, hello = os.urandom(DIGEST), self.plan + _VERSION
        outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        call = self._join(iter(outgoing.get, None), metadata=((_HELLO, hello), (_NONCE, nonce)))
        message = Message(self.most + AROUND)
        greeting = _greeting(nonce, hello, self.identity.certificate)
        try:
            shown_by_it = dict(call.initial_metadata())  # once the parent has taken this node in
            if call.is_active():
                self._know(shown_by_it, greeting, tell)
                self._gone = 0.0
                tell(Line("", "parent", there=True))
            for part in call:
                self.traffic["received"] += len(part)
                letter = self._taken(message, part)
                if letter is None:
                    continue
                content, message = bytes(message.content), Message(self.most + AROUND)
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
                if letter != b"Q":
                    raise BadMessageError("what is no question")
                question = Question.read(content)
                # Between rounds, so that no sum is begun by one key and ended by another.
                at = question.place
                if at.begins and at.first == 1 and self.identity.renewed():
                    raise _RenewedError
                yield None
                for each in self._reply(answer(question), question.digest):
                    self.traffic["sent"] += len(each)
                    outgoing.put(each)
        finally:
            outgoing.put(None)
            call.cancel()

    def _know(self, metadata: dict[str, bytes], greeting: bytes, tell: Tell) -> None:
        """That the parent is who it is by its certificate of today; an `InputError` otherwise."""
        certificate, own = metadata.get(_SHOWN, b""), self.identity
        own.heed(tell)
        wrong = own.fault(certificate, self.parent)
        if wrong is None and not keys.verify(certificate, metadata.get(_SIGNED, b""), greeting):
            wrong = "has not signed that it is there"
        if wrong is not None:
            raise InputError("--as", self.parent, f"shows a certificate that {wrong}")
        if self._shown not in (b"", certificate):
            line = f"shows a new certificate, valid until {keys.ends(certificate)}"
            tell(f"{self.parent} {line}")
        self._shown = certificate

    def _taken(self, message: Message, part: bytes) -> bytes | None:
        """The letter of a message that is whole; what it announces is looked at before."""
        if not message.content and part[:1] not in (b"E", b"S"):
            announced, most = Question.announced(part[1:]), self.most + AROUND
            if announced > most:
                known = f"where the plan has at most {most}"
                raise BadMessageError(f"a question of {announced} bytes, {known}")
        return message.take(part)

    def _reply(self, reply: Answer | Refusal, digest: bytes) -> list[bytes]:
        size = self.settings.chunk_bytes
        if isinstance(reply, Refusal):
            return cut(b"R", digest + reply.reason.encode(), size)
        return cut(b"A", digest + reply.packed(), size)

    def _why(self, error: Any) -> str:
        """Why the parent is waited for; it ends where waiting mends nothing."""
        details, code = str(error.details()), error.code()
        if code == grpc.StatusCode.CANCELLED:
            problem = "another process of this node's name has joined; a node is one process"
            raise InputError("--as", self.parent, problem) from None
        if code == _REFUSED and " plan" in details and self.waits:
            return f"has another plan than this node ({self.address}); waiting for it"
        if code == _REFUSED and "another key" in details:  # the former one may leave
            return f"refuses this node: {shown(details)}; waiting"
        if code == _REFUSED:
            refused = OtherPlanError if "another plan" in details else InputError
            raise refused("--as", self.parent, f"refuses this node: {shown(details)}") from None
        line, own = "is not there", self.identity
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


class OtherPlanError(InputError):
    """The parent has another plan than this node."""


class _RenewedError(Exception):
    """This node's certificate is a new one: the parent is to see it."""


def _greeting(nonce: bytes, hello: bytes, certificate: bytes) -> bytes:
    """What a parent signs for a child that has shown a certificate."""
    return b"m2fdp parent" + nonce + hello + sha256(certificate).digest()


def _shown_by(identity: Identity) -> Any:
    pair = [(identity.key, identity.certificate)]
    return grpc.ssl_server_certificate_configuration(pair, identity.authority)
