"""Signed lines: what a parent finds wrong with its children's."""

import base64
import json
from dataclasses import replace

import pytest
from tests.deployment.trees import guarded_tree, identity, lines_of

from m2fdp.deployment.links import Answer, Place, Question
from m2fdp.deployment.state import Log, State
from m2fdp.deployment.statements import Below, Said, fault, read, said

ADDED = 0.5
QUESTION = Question(bytes(32), Place(2, 1, 4, "model"), bytes(12))
CONTENT = b"twelve bytes"
WHOLE = bytes(4 * 640)  # a model's


@pytest.fixture
def ours(tmp_path):
    return identity(tmp_path, "device-0")


def line_of(ours, added=ADDED):
    return said(ours, QUESTION, CONTENT, added, None)


def test_a_line_that_was_changed_or_is_another_s_is_found(ours, tmp_path):
    line = line_of(ours)
    changed = read(line.replace('"round": 2', '"round": 3'))
    other = identity(tmp_path, "device-1")
    assert "not signed" in fault(changed, ours.certificate, QUESTION, CONTENT, ADDED)
    assert "not signed" in fault(read(line), other.certificate, QUESTION, CONTENT, ADDED)
    assert fault(read(line), ours.certificate, QUESTION, CONTENT, ADDED) is None
    garbled = read(line.rpartition("  ")[0] + "  no base64")
    assert "not signed" in fault(garbled, ours.certificate, QUESTION, CONTENT, ADDED)


@pytest.mark.parametrize(
    ("question", "content", "added", "words"),
    [
        (replace(QUESTION, content=bytes(8)), CONTENT, ADDED, "says question"),
        (replace(QUESTION, place=Place(3, 1, 4, "model")), CONTENT, ADDED, "says round 2, not 3"),
        (replace(QUESTION, plan=bytes([1] * 32)), CONTENT, ADDED, "says plan"),
        (QUESTION, b"other bytes.", ADDED, "says answer"),
        (QUESTION, CONTENT, 0.6, "says that it added 0.5, and the plan has 0.6"),
    ],
)
def test_a_line_on_something_else_is_found(ours, question, content, added, words):
    found = fault(read(line_of(ours)), ours.certificate, question, content, added)
    assert found is not None and words in found and "\n" not in found


def test_what_is_no_line_is_none():
    for line in ("", "{}  x", json.dumps({"number": 1})):
        with pytest.raises(ValueError):
            read(line)


def test_a_parent_knows_an_older_state_by_its_number(tmp_path):
    nodes = guarded_tree(tmp_path, {"topology.trust.ratios": [0.0]})
    nodes.run()
    parent, child = nodes.of["server-1-0"], nodes.of["device-0"]
    own = identity(tmp_path, "device-0")
    state = State(tmp_path / "fresh", "server-1-0")
    below = Below(parent.guard.node, state)
    lines, told = lines_of(child.guard.state), []

    def checked(line, more=0.0):
        """Signed anew, with its number."""
        content = read(line).content
        place = Place(content["round"], content["first"], content["last"], "model")
        question = replace(QUESTION, plan=nodes.plan.digest, place=place)
        former = Said(content["number"] - 1, "", {})
        again = said(own, question, WHOLE, content["added"] + more, former)
        told.append((own.certificate, question, Answer(WHOLE, again.encode())))
        return below.check("device-0", *told[-1])

    assert checked(lines[1]) is None
    assert "one with an older state" in checked(lines[0])
    assert checked(lines[2]) is None
    assert checked(lines[2]) is None, "signed anew, by a new key perhaps, it is the same line"
    assert "two processes of its name" in checked(lines[2], more=1.0)
    for _ in range(2):
        below.seal()
        assert len(Log(state.folder / "statements.log").entries) == 2
    again = Below(parent.guard.node, state)
    heard = [again.check("device-0", *each) for each in told]
    assert heard[0] is heard[2] is None, "a server that died before it answered hears both again"
    assert "one with an older state" in heard[1] and "two processes" in heard[4], "lies stay lies"


def test_signatures_are_drawn_so_that_digests_of_lines_tell_nothing(ours):
    signatures = {line_of(ours).rpartition("  ")[2] for _ in range(3)}
    assert len(signatures) == 3 and all(len(base64.b64decode(each)) > 60 for each in signatures)
