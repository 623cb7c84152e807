"""Whatever bytes come, in both directions: one line, and no process ends by them."""

import base64
import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.deployment.test_masked import SKIP, lying, summed
from tests.deployment.trees import identity, tree_of

from m2fdp.deployment import masked_messages as messages
from m2fdp.deployment.config import DeploymentConfig
from m2fdp.deployment.grpc_links import BadMessageError, GrpcLink
from m2fdp.deployment.links import STEPS, Answer, Place, Question, Refusal, shown
from m2fdp.deployment.node_plan import ChildrenError
from m2fdp.deployment.statements import fault, read, said

PLAN, PLACE = bytes(32), Place(1, 1, 4, "model")
QUESTION = Question(PLAN, PLACE, bytes(8))
REQUEST = messages.UnmaskRequest((0, 1), (2,))
OFTEN = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
FEW = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=3
)


FRACTIONS = st.floats(0, 1)
EDITS = st.lists(st.tuples(FRACTIONS, st.integers(0, 40), st.binary(max_size=40)), max_size=3)


def changed(whole, edits, left=1.0):
    """Bytes like those of a message: some of it, with others in between."""
    content = bytearray(whole)
    for where, size, others in edits:
        at = int(where * len(content))
        content[at : at + size] = others
    return bytes(content[: int(left * len(content))])


def like(whole):
    return st.binary(max_size=100) | st.builds(changed, st.just(whole), EDITS, FRACTIONS)


DECODERS = {
    "question": (Question.read, QUESTION.head() + QUESTION.content),
    "announced": (Question.announced, QUESTION.head()),
    "parts": (lambda b: messages.unpack(b, "x"), messages.pack([(0, b"a"), (7, b"bc")])),
    "keys": (
        lambda b: messages.unpack_keys(0, b),
        messages.pack([(0, bytes(64)), (1, b""), (2, b"")]),
    ),
    "words": (lambda b: messages.unpack_words(0, b), bytes(8)),
    "request": (messages.unpack_request, messages.pack_request(REQUEST)),
    "unmasking": (
        lambda b: messages.unpack_unmasking(0, b, REQUEST),
        messages.pack((u, bytes(33)) for u in range(3)),
    ),
    "answer": (Answer.unpacked, Answer(b"content", b"statement").packed()),
    "statement": (lambda b: read(b.decode(errors="replace")), b'{"number": 1}  AAAA'),
    "log": (shown, b"a line\n\x1b[2J"),
}


@OFTEN
@given(st.data())
@pytest.mark.parametrize(("decode", "whole"), DECODERS.values(), ids=DECODERS)
def test_what_is_no_message_is_told_so(decode, whole, data):
    decode(whole)
    try:
        decode(data.draw(like(whole)))
    except (ValueError, messages.NoMessage) as error:
        assert str(error).isprintable()


@given(said=st.text() | st.binary())
def test_a_log_is_written_by_its_node_alone(said):
    assert shown(said).isprintable() and len(shown(said)) < 5000


@OFTEN
@given(st.dictionaries(st.sampled_from(["node", "added", "number", "answer", "x"]), JSON))
@example({"number": float("inf")})
@example({"added": "much"})
@example({"number": 10**400})
def test_what_a_child_signs_is_looked_at_whatever_it_is(tmp_path, content):
    own = identity(tmp_path, "device-0")
    text, _, _ = said(own, QUESTION, b"answer", 0.5, None).rpartition("  ")
    signed = json.dumps(json.loads(text) | content)
    line = f"{signed}  {base64.b64encode(own.sign(signed.encode())).decode()}"
    try:
        wrong = fault(read(line), own.certificate, QUESTION, b"answer", 0.5)
    except ValueError as error:
        wrong = str(error)
    assert wrong is None or isinstance(wrong, str)


def test_nesting_without_end_is_no_statement():
    with pytest.raises(ValueError, match="no statement"):
        read("[" * 100_000 + "  AAAA")


@OFTEN
@given(st.lists(like(b"Q" + QUESTION.head() + bytes(8)), max_size=5))
@example([b""])
@example([b"E\xff\xfe\n"])
@example([b"C" + QUESTION.head()] * 4)
def test_whatever_a_parent_sends_a_child_says_so_and_lives(tmp_path, parts):
    class Call:
        def __init__(self):
            self.left = iter(parts)

        def __iter__(self):
            return self.left

        def __next__(self):
            return next(self.left)

        def initial_metadata(self):
            return ()

        def is_active(self):
            return True

        def cancel(self):
            pass

    own = identity(tmp_path, "device-0")
    link = GrpcLink("parent", "127.0.0.1:1", own, PLAN, DeploymentConfig(), 100)
    link._join, link._know = lambda outgoing, metadata: Call(), lambda *given: None
    try:
        for ended in link._session(lambda question: Refusal("a", "no"), str):
            assert ended is None or ended.reason.isprintable()
    except BadMessageError as error:
        assert str(error).isprintable()
    finally:
        link.close()


@FEW
@given(edits=EDITS, left=FRACTIONS)
@pytest.mark.parametrize("kind", STEPS[1:])
def test_a_sum_s_child_takes_whatever_it_is_asked(kind, edits, left):
    nodes = tree_of(SKIP)
    lying(nodes, kind, lambda content: changed(content, edits, left))
    assert all(told.isprintable() for told in nodes.missed)


@FEW
@given(edits=EDITS, left=FRACTIONS)
@pytest.mark.parametrize("mode", ["skip", "stop"])
@pytest.mark.parametrize("kind", STEPS)
def test_a_sum_s_parent_takes_whatever_it_is_answered(kind, mode, edits, left):
    nodes = tree_of(SKIP, {"deployment.on_missing": mode})
    child = nodes.of["device-1"]
    compute = child.compute

    def lies(question):
        content = compute(question)
        return changed(content, edits, left) if question.place.kind == kind else content

    child.compute = lies
    try:
        summed(nodes)
    except ChildrenError as error:
        assert mode == "stop" and str(error).isprintable()
