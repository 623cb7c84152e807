"""Links over gRPC: vectors in parts, who is missing, who is not let in, and who comes back."""

import socket
import ssl
import threading
import time
from datetime import timedelta
from itertools import repeat
from queue import SimpleQueue

import pytest
import torch
from tests.deployment.relay import Relay, free_address, told_by, wait_for
from tests.deployment.trees import authority, identity
from tests.deployment.trees import identity as identity_of

from m2fdp.core.errors import InputError
from m2fdp.deployment import keys
from m2fdp.deployment.config import DeploymentConfig
from m2fdp.deployment.grpc_links import _HELLO, _VERSION, GrpcLink, GrpcLinks, grpc
from m2fdp.deployment.links import Answer, End, Missing, Place, Question, Refusal, to_bytes
from m2fdp.deployment.seats import Seat

PLAN = bytes(range(31)) + _VERSION  # so that a plan of less is one without a version
CHILDREN = ("a", "b", "c")
MOST = 4 * 100_000
PLACE = Place(1, 1, 4, "model")


def settings(**changes):
    return DeploymentConfig(**{"patience_s": 20.0} | changes)


@pytest.fixture(autouse=True)
def _messages_of_several_parts(monkeypatch):
    monkeypatch.setattr(DeploymentConfig, "chunk_bytes", 1024)


def question(value=1.0, size=3000):
    return Question(PLAN, PLACE, to_bytes(torch.full((1, size), value)))


class Parent:
    def __init__(self, folder, **changes):
        self.folder, self.settings, self.told = folder, settings(**changes), []
        self.address = free_address()
        self.links = self.listening()

    def listening(self):
        links = GrpcLinks(
            CHILDREN,
            identity(self.folder, "parent"),
            self.settings,
            MOST,
            lambda child, certificate, question, answer: (
                None if answer.statement == child.encode() else "is another's"
            ),
            told_by(self.told),
            self.address,
            PLAN,
        )
        links.farewell_s = 0.1  # some of these children never come
        return links

    def ask(self, asked):
        return self.links.ask([asked] * len(CHILDREN))

    def wait_for(self, *names):
        """Until these children are there."""
        wait_for(lambda: all(self.links._seats[name].context for name in names))

    def child(self, name, answer=None, plan=PLAN, own=None, told=None):
        """A thread that serves as a child; its result is appended to `ended`."""

        def plus(asked):
            vector = asked.vector + CHILDREN.index(name)
            return Answer(to_bytes(vector), name.encode())

        link = GrpcLink(
            "parent", self.address, own or identity(self.folder, name), plan, self.settings, MOST
        )
        ended = []

        def serve():
            try:
                tell = told_by(told if told is not None else [])
                ended.append(link.serve(answer or plus, tell).reason)
            except InputError as error:
                ended.append(str(error))
            link.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        return thread, ended, link


@pytest.fixture
def parent(tmp_path):
    made = Parent(tmp_path)
    yield made
    made.links.end(End("the test is over", True))


def values(replies):
    return [float(reply.vector[0, 0]) for reply in replies]


def test_answers_come_whole_and_in_the_tree_s_order_whoever_is_first(parent):
    slow = threading.Event()

    def late(asked):
        slow.wait(20)
        return Answer(to_bytes(asked.vector), b"a")

    threads = [parent.child(name, late if name == "a" else None) for name in reversed(CHILDREN)]
    replies = parent.ask(question(5.0))
    threading.Timer(0.3, slow.set).start()
    got = list(replies)
    assert values(got) == [5.0, 6.0, 7.0] and all(g.vector.shape == (1, 3000) for g in got)
    assert values(parent.ask(question(0.0, size=2))) == [0.0, 1.0, 2.0]
    parent.links.end(End("over", True))
    for thread, ended, _ in threads:
        thread.join(20)
        assert ended == ["over"]


def test_messages_are_hardly_larger_than_what_they_hold(parent):
    links = [parent.child(name)[2] for name in CHILDREN]
    size = 100_000
    list(parent.ask(question(size=size)))
    for link in links:
        assert 4 * size < link.traffic["sent"] < 1.05 * 4 * size
        assert 4 * size < link.traffic["received"] < 1.05 * 4 * size


def test_a_refusal_is_one_line_at_the_parent(parent):
    parent.child("a", lambda asked: Refusal("a", "no,\n\x1b[31mthank you" + 5000 * "!"))
    line = str(next(parent.ask(question())))
    assert line.startswith("a refuses: no,\\n\\x1b[31mthank you!!!") and len(line) < 500


class Hostile:
    """Who has a child's certificate, and sends what it likes to each question, a part a time."""

    def __init__(self, parent, name, parts, pause=0.0):
        self.parts, self.pause, self.ended, self.sent = parts, pause, [], 0
        own = identity(parent.folder, name)
        link = GrpcLink("parent", parent.address, own, PLAN, parent.settings, MOST)
        self.outgoing = SimpleQueue()
        self.call = link._join(iter(self.outgoing.get, None), metadata=((_HELLO, PLAN + _VERSION),))
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        try:
            for part in self.call:
                for each in self.parts(part) if part[:1] == b"Q" else ():
                    time.sleep(self.pause)
                    self.sent += len(each)
                    self.outgoing.put(each)
                    wait_for(lambda: self.outgoing.empty() or self.call.done())
                    if self.call.done():
                        break
        except grpc.RpcError as error:
            self.ended.append(error.details())


def no_answer(digest):
    return lambda part: [b"A" + digest + bytes(4)]


BAD = {
    "another question's": (no_answer(bytes(32)), "what is no answer to this question"),
    "empty": (lambda part: [b""], "what is no answer"),
    "unknown": (lambda part: [b"Z" + bytes(80)], "what is no answer"),
    "too short": (lambda part: [b"A"], "what is no answer"),
    "not signed by it": (no_answer(question().digest), "is another's"),
    "endless": (lambda part: repeat(b"C" + bytes(60_000)), "more than the 404096 bytes"),
}


@pytest.mark.parametrize("mode", ["wait", "skip", "stop"])
@pytest.mark.parametrize(("parts", "words"), BAD.values(), ids=BAD)
def test_a_child_that_sends_what_is_no_answer_is_missing_by_itself(tmp_path, mode, parts, words):
    parent = Parent(tmp_path, on_missing=mode)
    hostile = Hostile(parent, "a", parts)
    parent.child("b")
    parent.child("c")
    parent.wait_for("a")
    replies = parent.ask(question())
    if mode == "wait":
        threading.Thread(target=lambda: (wait_for(lambda: parent.told), parent.child("a"))).start()
        assert values(replies) == [1.0, 2.0, 3.0]
        assert parent.told[0].startswith("a is sent away: ") and words in parent.told[0]
    else:
        first, *others = replies
        assert isinstance(first, Refusal) and words in first.reason and values(others) == [2, 3]
        wait_for(lambda: hostile.ended)
        assert words in hostile.ended[0]
    assert hostile.sent < 2 * MOST, "of what is endless"
    parent.links.end(End("over", True))


def test_a_deadline_is_of_the_whole_answer_and_takes_nobody_else_s_turn(tmp_path):
    """A part each tenth of a second held a parent of 2 s patience for 25 s and more."""
    parent = Parent(tmp_path, on_missing="skip", patience_s=0.6)
    dripping = Hostile(parent, "a", lambda part: repeat(b"C" + bytes(10)), pause=0.1)
    for name in ("b", "c"):
        parent.child(name)
    parent.wait_for(*CHILDREN)
    asked = time.monotonic()
    first, *others = parent.ask(question())
    assert first == Missing("a") and values(others) == [2.0, 3.0], "of several parts each"
    assert 0.6 <= time.monotonic() - asked < 1.2
    asked = time.monotonic()
    first, *others = parent.ask(question(2.0))
    assert first == Missing("a") and values(others) == [3.0, 4.0]
    assert time.monotonic() - asked < 0.4, "who owes an answer is not waited for again"
    dripping.call.cancel()
    parent.links.end(End("over", True))


def test_who_is_gone_is_done_without_at_once_until_it_is_back(tmp_path):
    parent = Parent(tmp_path, on_missing="skip", patience_s=0.5)
    for name in ("b", "c"):
        parent.child(name)
    parent.wait_for("b", "c")
    took = []
    for value in (1.0, 2.0, 3.0):
        asked = time.monotonic()
        first, *others = parent.ask(question(value))
        assert first == Missing("a") and values(others) == [value + 1, value + 2]
        took.append(time.monotonic() - asked)
    assert took[0] >= 0.5 and max(took[1:]) < 0.25
    parent.child("a")
    wait_for(lambda: parent.links._seats["a"].idle)
    assert values(parent.ask(question(4.0))) == [4.0, 5.0, 6.0]
    parent.links.end(End("over", True))


def test_streams_that_send_nothing_keep_no_child_out(parent):
    """Children and four more, of a node outside the plan, kept all children out."""
    strangers = []
    for name in ("stranger", "stranger", "a", "a"):
        own = identity(parent.folder, name)
        link = GrpcLink("parent", parent.address, own, PLAN, parent.settings, MOST)
        for _ in range(20):
            hello = ((_HELLO, PLAN + _VERSION),) if len(strangers) % 2 else ()
            strangers.append(link._join(iter(SimpleQueue().get, None), metadata=hello))
    wait_for(lambda: sum(call.done() for call in strangers) >= len(strangers) - 1)
    for name in CHILDREN:
        parent.child(name)
    assert values(parent.ask(question())) == [1.0, 2.0, 3.0]
    assert (
        parent.told.count("stranger is no child of this node in its plan; it is not taken in") == 1
    )
    assert (
        parent.told.count("a has another version of m2fdp than this node; it is not taken in") == 1
    )


def test_who_does_not_answer_is_waited_for_skipped_or_ends_the_run(tmp_path):
    skipping = Parent(tmp_path, on_missing="skip", patience_s=0.5)
    skipping.child("b")
    skipping.child("c")
    skipping.wait_for("b", "c")
    first, *others = skipping.ask(question())
    assert first == Missing("a") and values(others) == [2.0, 3.0]
    skipping.links.end(End("over", True))
    stopping = Parent(tmp_path, on_missing="stop", patience_s=0.5)
    reply = next(stopping.ask(question()))
    assert isinstance(reply, Refusal) and "a is not there after 0.5 s" in reply.reason
    stopping.links.end(End("over", True))
    waiting = Parent(tmp_path, on_missing="wait", patience_s=0.5)
    threading.Timer(1.3, waiting.child, ["a"]).start()
    assert values([next(waiting.ask(question()))]) == [1.0]
    assert waiting.told[0] == "a is not there after 0.5 s; waiting"
    waiting.links.end(End("over", True))


def test_a_parent_that_comes_back_asks_again(parent):
    told = []
    threads = [parent.child(name, told=told) for name in CHILDREN]
    assert values(parent.ask(question())) == [1.0, 2.0, 3.0]
    parent.links._server.stop(0).wait()
    parent.links = parent.listening()
    assert values(parent.ask(question(2.0))) == [2.0, 3.0, 4.0]
    assert "parent is back" in told
    assert all(thread.is_alive() for thread, *_ in threads)


def test_a_child_that_comes_back_is_asked_again(parent):
    calls = []

    def dies(asked):
        calls.append(asked)
        raise InputError("child", "a", "is killed")

    parent.child("a", dies)
    replies = parent.ask(question())
    threading.Timer(0.5, parent.child, ["a"]).start()
    assert values([next(replies)]) == [1.0] and len(calls) == 1


def test_of_two_processes_of_one_name_the_former_leaves(parent):
    _, ended, _ = parent.child("a")
    parent.wait_for("a")
    parent.child("a")
    wait_for(lambda: ended)
    assert "another process of this node's name has joined" in ended[0]
    assert values([next(parent.ask(question()))]) == [1.0]


def test_the_former_process_is_sent_away_before_its_place_is_taken():
    """Else its stream could end by itself first, and it would wait for its parent for ever."""
    seat, held = Seat("a"), []

    class Former:
        def cancel(self):
            held.append(seat.context)

    former = Former()
    seat.take(former, b"")
    seat.take("another", b"")
    assert held == [former] and seat.context == "another"


@pytest.mark.parametrize(
    ("name", "plan", "words"),
    [
        ("stranger", PLAN, "stranger is no child of this node in its plan"),
        ("a", bytes(32), "a has another plan than this node"),
        ("a", PLAN[:-1], "a has another version of m2fdp than this node"),
    ],
)
def test_strangers_and_other_plans_are_turned_away(parent, name, plan, words):
    thread, ended, _ = parent.child(name, plan=plan)
    thread.join(20)
    assert words in ended[0]


FALSE = {
    "empty": (b"", "what is no question"),
    "short": (b"Qgarbage", "what is no question"),
    "of a bad kind": (b"Q" + PLAN + bytes(12) + b"\xff" + bytes(8), "what is no question"),
    "unknown": (b"Z" + question(size=1).head() + bytes(4), "what is no question"),
    "cut": (b"Q" + question(size=2).head() + bytes(4), "what is no whole question"),
    "endless": (
        b"C" + PLAN + bytes(13) + (2**50).to_bytes(8, "little"),
        "a question of 11258999",
    ),
}


@pytest.mark.parametrize(("part", "words"), FALSE.values(), ids=FALSE)
def test_what_is_no_question_closes_a_stream_in_a_line_and_ends_no_child(parent, part, words):
    told = []
    thread, ended, link = parent.child("a", told=told)
    parent.wait_for("a")
    for _ in range(2):
        parent.links._seats["a"].ask(1, [part])
        wait_for(lambda: told)
    assert told == [f"parent has sent {words}"] or words in told[0] and len(told) == 1
    assert thread.is_alive() and not ended and link.traffic["received"] < 1000
    assert values([next(parent.ask(question()))]) == [1.0] and "parent is back" in told


def test_who_dies_before_it_has_kept_the_end_is_told_again(parent):
    def dies(end):
        raise KeyboardInterrupt

    for name in ("a", "b"):
        parent.child(name)
    parent.wait_for("a", "b")
    parent.links.farewell_s = 2.0
    link = GrpcLink("parent", parent.address, identity(parent.folder, "c"), PLAN, settings(), MOST)
    ended = []
    threading.Thread(target=lambda: ended.append(parent.links.end(End("over", True)))).start()
    with pytest.raises(KeyboardInterrupt):
        link.serve(None, parent.told.append, dies)
    link.close()
    wait_for(lambda: ended)
    assert ended == [{"a", "b"}]
    assert parent.told[-1] == "c: not told yet; start this node again to tell them"


def test_another_authority_s_nodes_do_not_meet(parent, tmp_path):
    other = tmp_path / "other"
    false = identity(other, "a")
    thread, ended, _ = parent.child("a", own=false)
    thread.join(20)
    assert "shows no certificate of that name by this authority" in ended[0]
    mixed = keys.Identity("a", false.key, false.certificate, identity(tmp_path, "a").authority)
    told = []
    parent.child("a", own=mixed, told=told)
    wait_for(lambda: told)
    assert "waiting for it" in told[0] and parent.links._seats["a"].context is None
    assert authority(other) != authority(tmp_path)


@pytest.mark.parametrize(
    ("whose", "days", "words"),
    [
        ("a", -3, "and this node's certificate was valid until"),
        ("a", 3, "and this node's certificate is valid from"),
        ("parent", -3, "parent shows a certificate that has expired"),
        ("parent", 3, "parent shows a certificate that is not valid yet; see both clocks"),
    ],
)
def test_a_certificate_out_of_its_time_is_told_of_and_waited_for(
    tmp_path, monkeypatch, whose, days, words
):
    class Shifted(keys.datetime):
        @classmethod
        def now(cls, zone):
            return super().now(zone) + timedelta(days=days)

    folder = tmp_path / "keys" / whose
    with monkeypatch.context() as patched:
        patched.setattr(keys, "datetime", Shifted)
        keys.sign(keys.request(whose, folder), authority(tmp_path), days=1)
    files = (folder / name for name in (f"{whose}.key", f"{whose}.pem", "authority.pem"))
    own = keys.Identity(whose, *(file.read_bytes() for file in files))
    monkeypatch.setitem(
        globals(), "identity", lambda f, n: own if n == whose else identity_of(f, n)
    )
    parent, told = Parent(tmp_path), []
    thread, ended, _ = parent.child("a", told=told)
    wait_for(lambda: told or ended)
    assert words in told[0] and "waiting for it" in told[0] and thread.is_alive()
    parent.links.end(None)


def test_a_host_that_is_not_found_is_waited_for(parent):
    told, parent.address = [], "no.such.host.invalid:7001"
    thread, _, _ = parent.child("a", told=told)
    wait_for(lambda: told)
    assert told == [
        "parent has an address that is not found (no.such.host.invalid:7001); waiting for it"
    ]
    assert thread.is_alive()


def test_a_parent_that_waits_says_how_many_came_without_a_certificate(tmp_path):
    parent = Parent(tmp_path, patience_s=0.5)
    host, port = parent.address.split(":")
    other, own = identity(tmp_path / "other", "a"), identity(tmp_path, "a")
    mixed = keys.Identity("a", other.key, other.certificate, own.authority)
    idle = [socket.create_connection((host, int(port))) for _ in range(3)]
    _, ended, link = parent.child("a", own=mixed)
    for name in ("b", "c"):
        parent.child(name)
    parent.wait_for("b", "c")
    replies = parent.ask(question())
    threading.Thread(target=lambda: (wait_for(lambda: parent.told), parent.child("a"))).start()
    assert values(replies) == [1.0, 2.0, 3.0]
    told, _, count = parent.told[0].rpartition(": ")
    words = "waiting; connections without a certificate that is taken, or without TLS"
    assert told == f"a is not there after 0.5 s; {words}" and 4 <= int(count) < 10
    for each in idle:
        each.close()
    parent.links.end(None)


def test_a_parent_of_another_name_is_not_talked_to(parent, tmp_path):
    link = GrpcLink("aunt", parent.address, identity(tmp_path, "a"), PLAN, settings(), MOST)
    with pytest.raises(InputError, match="shows no certificate of that name"):
        link.serve(lambda asked: Refusal("a", "never asked"), lambda line: None)
    link.close()


def test_tls_before_1_3_is_not_spoken(parent, tmp_path):
    identity(tmp_path, "a")
    own = tmp_path / "keys" / "a"
    for version, spoken in ((ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)):
        context = ssl.create_default_context(cafile=own / "authority.pem")
        context.load_cert_chain(own / "a.pem", own / "a.key")
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2"])
        host, port = parent.address.split(":")
        raw = socket.create_connection((host, int(port)), timeout=20)
        if spoken:
            with context.wrap_socket(raw, server_hostname="parent") as secure:
                assert secure.version() == "TLSv1.3"
        else:
            with pytest.raises((ssl.SSLError, OSError)):
                context.wrap_socket(raw, server_hostname="parent")
        raw.close()


def test_an_address_that_is_taken_is_refused_in_one_line(parent):
    with pytest.raises(InputError, match="can't be listened at"):
        parent.listening()


def test_nothing_is_in_clear_on_the_line(parent):
    relay, direct = Relay(parent.address), parent.address
    parent.address = relay.address
    parent.child("a")
    parent.address = direct
    asked = question(1.2345, size=5000)
    assert values([next(parent.ask(asked))]) == pytest.approx([1.2345])
    relay.listener.close()
    content, heard = to_bytes(asked.vector), bytes(relay.heard)
    assert len(heard) > 2 * len(content), "question and answer have passed"
    assert content[:16] not in heard and PLAN[:16] not in heard
    # TLS 1.3 hides the certificates, too; the name that a child asks for it does not.
    assert b"m2fdp" not in heard and b"Tree" not in heard


def test_of_a_parent_that_does_not_come_is_said_once_what_to_do(tmp_path):
    address, told, own = free_address(), [], identity(tmp_path, "a")
    link = GrpcLink("parent", address, own, PLAN, settings(patience_s=1.0), MOST)
    serve = threading.Thread(target=link.serve, args=(None, told_by(told)), daemon=True)
    serve.start()
    wait_for(lambda: len(told) > 1)
    time.sleep(1.2)
    first, then = told
    assert "waiting for it" in first and then.startswith("parent has not been there for 1 s. If ")
    assert "start it again with its state" in then


def test_a_child_that_comes_and_goes_all_the_time_has_one_line(parent):
    seat = parent.links._seats["a"]
    lines = []
    for there in (True, False) * 5:
        seat.context = object() if there else None
        lines.append(seat.presence())
    assert [str(line) for line in lines if line] == ["a is there"]
    assert [line.facts["there"] for line in lines] == [True, False] * 5
    seat.context = None
