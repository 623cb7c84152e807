"""The guard: the same bytes for the same question, no other question, no more than the budget; and
a state that is what it was, or refused."""

import json
import os
import shutil

import pytest
import torch
from tests.deployment.trees import REHEARSAL, guarded_tree

from m2fdp.deployment import state as states
from m2fdp.deployment.links import Answer, Place, Question, Refusal, to_bytes
from m2fdp.deployment.state import Log, State
from m2fdp.deployment.statements import broken_chain, read
from m2fdp.errors import InputError

ONE = {
    "topology.fanouts": [4],
    "topology.trust.ratios": [],
    "training.rounds": 3,
    "training.local_aggregation": None,
}
DEVICE = "device-0"
# Epsilon of a device of these after one, two and three rounds.
EPSILONS = (2.145, 3.172, 4.0)


@pytest.fixture
def nodes(tmp_path):
    return guarded_tree(tmp_path, ONE)


def question_of(nodes, round_=1, value=0.0, first=1, last=4, kind="model"):
    vector = torch.full((1, nodes.experiment.model.n_parameters), value)
    return Question(nodes.plan.digest, Place(round_, first, last, kind), to_bytes(vector))


def answered(nodes, *question, **changes):
    return nodes.of[DEVICE].answer(question_of(nodes, *question, **changes))


def refused(nodes, words, *question, **changes):
    reply = answered(nodes, *question, **changes)
    assert isinstance(reply, Refusal) and words in reply.reason and "\n" not in reply.reason
    return reply


def test_the_same_question_gets_the_same_bytes_though_noise_is_fresh(nodes):
    first = answered(nodes)
    device = nodes.of[DEVICE]
    assert answered(nodes).content == first.content
    nodes.again(DEVICE)
    again = answered(nodes)
    assert (again.content, again.statement) == (first.content, first.statement)
    fresh = device.compute(question_of(nodes))
    assert fresh != first.content, "what is drawn anew is other noise"


def test_another_question_for_the_same_place_is_refused_for_ever(nodes):
    answered(nodes)
    refused(nodes, "would be a second release", value=0.1)
    nodes.again(DEVICE)
    refused(nodes, "would be a second release", value=0.1)
    assert isinstance(answered(nodes), Answer)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"last": 3}, "the plan has no question of round 1, steps 1 to 3"),
        ({"first": 2}, "the plan has no question of"),
        ({"kind": "gradient"}, "the plan has no question of"),
        ({"round_": 4}, "the plan has no question of round 4"),
        ({"round_": 0}, "the plan has no question of round 0"),
        ({"value": float("nan")}, "is not 640 finite numbers"),
    ],
    ids=str,
)
def test_what_the_plan_does_not_ask_is_refused(nodes, changes, words):
    refused(nodes, words, **changes)
    assert nodes.states[DEVICE].budget.entries == []


def test_another_plan_s_question_is_refused(nodes):
    asked = question_of(nodes)
    other = Question(bytes(32), asked.place, asked.content)
    assert "another plan" in nodes.of[DEVICE].answer(other).reason


def test_rounds_go_forward_only(nodes):
    answered(nodes, 2)
    refused(nodes, "round 1, steps 1 to 4, model is before what was answered last", 1)
    answered(nodes, 3)
    refused(nodes, "no longer kept", 2)


def test_a_budget_ends_what_it_does_not_cover_and_counts_earlier_runs(tmp_path):
    nodes = guarded_tree(tmp_path, ONE, budget=3.5)
    assert isinstance(answered(nodes, 1), Answer) and isinstance(answered(nodes, 2), Answer)
    refused(nodes, "round 3 would bring its epsilon to 4 and its budget is 3.5", 3)
    spent = nodes.states[DEVICE].budget.entries
    assert [entry["round"] for entry in spent] == [1, 2]
    assert [entry["epsilon"] for entry in spent] == pytest.approx(EPSILONS[:2], abs=2e-3)
    nodes.close()
    other = guarded_tree(tmp_path, ONE, {"seed": 5}, budget=3.5)
    refused(other, "with 3.172 of earlier runs,", 1)
    other.close()
    richer = guarded_tree(tmp_path, ONE, {"seed": 5}, budget=5.4)
    assert isinstance(answered(richer, 1), Answer)
    last = richer.states[DEVICE].budget.entries[-1]
    assert last["in_all"] == pytest.approx(EPSILONS[0] + EPSILONS[1], abs=4e-3)
    assert last["delta_in_all"] == 2 * last["delta"]


def test_a_round_is_spent_before_anything_is_computed(nodes, monkeypatch):
    def dies(question):
        raise KeyboardInterrupt

    device = nodes.of[DEVICE]
    with pytest.raises(KeyboardInterrupt):
        device.guard.answer(question_of(nodes), dies)
    nodes.again(DEVICE)
    assert [entry["round"] for entry in nodes.states[DEVICE].budget.entries] == [1]
    answered(nodes)
    assert len(nodes.states[DEVICE].budget.entries) == 1


def test_a_process_that_dies_between_bytes_and_line_answers_as_before(nodes, monkeypatch):
    sent = []
    keep = State.keep

    def keeps_and_dies(state, book, what, content, waits):
        keep(state, book, what, content, waits)
        sent.append(content)
        raise KeyboardInterrupt

    monkeypatch.setattr(State, "keep", keeps_and_dies)
    with pytest.raises(KeyboardInterrupt):
        answered(nodes)
    monkeypatch.undo()
    nodes.again(DEVICE)
    refused(nodes, "second release", value=0.1)
    assert sent[0].endswith(answered(nodes).content)


def test_two_processes_have_no_state_together(nodes):
    with pytest.raises(InputError, match="in use by another process"):
        State(nodes.states[DEVICE].folder, DEVICE)


def closed(nodes, rounds):
    """The folder of a device that has answered some rounds."""
    for round_ in rounds:
        answered(nodes, round_)
    nodes.states[DEVICE].close()
    return nodes.states[DEVICE].folder


def cut(file):
    file.write_bytes(file.read_bytes()[:-9])


def change(file):
    file.write_text(file.read_text().replace('"round": 1', '"round": 2', 1))


def drop_a_line(file):
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[1:]))


@pytest.mark.parametrize("damage", [cut, change, drop_a_line])
@pytest.mark.parametrize("name", ["budget.log", "places.log"])
def test_a_damaged_state_is_refused(nodes, damage, name):
    folder = closed(nodes, [1, 2])
    damage(folder / name)
    with pytest.raises(InputError, match=f"{name}, line 1|{name}, line 2"):
        State(folder, DEVICE)


@pytest.mark.parametrize("name", ["budget.log", "places.log"])
def test_a_file_from_an_earlier_day_is_refused(nodes, name, tmp_path):
    answered(nodes, 1)
    shutil.copy(nodes.states[DEVICE].folder / name, tmp_path / "earlier")
    folder = closed(nodes, [2, 3])
    shutil.copy(tmp_path / "earlier", folder / name)
    with pytest.raises(InputError, match=f"{name}.* is older than"):
        State(folder, DEVICE)


def test_a_state_whose_owner_is_another_or_gone_is_refused(nodes):
    folder = closed(nodes, [1])
    with pytest.raises(InputError, match="is that of device-0, not of device-1"):
        State(folder, "device-1")
    (folder / "node.json").unlink()
    with pytest.raises(InputError, match="is missing from a state that was begun"):
        State(folder, DEVICE)


def test_a_damaged_answer_is_refused(nodes):
    answered(nodes)
    (kept,) = (nodes.states[DEVICE].folder / "kept").iterdir()
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        answered(nodes)


def test_what_a_crash_has_cut_is_not_kept_and_the_next_is(nodes):
    state = nodes.states[DEVICE]
    state.keep("book", "one", b"first")
    state.keep("book", "two", b"second")
    path = state.folder / "kept" / "book"
    path.write_bytes(path.read_bytes()[:-3])
    assert state.kept("book", "one") == b"first" and state.kept("book", "two") is None
    state.keep("book", "three", b"third")
    state.keep("book", "one", b"again", waits=False)
    assert state.kept("book", "one") == b"again" and state.kept("book", "three") == b"third"
    assert state.kept("book", "two") is None and state.kept("another", "one") is None


def test_a_state_of_an_older_version_is_refused(nodes):
    folder = closed(nodes, [1])
    (folder / "places.log").unlink()
    Log(folder / "places.log").append({"plan": "", "round": 1, "first": 1, "last": 4})
    with pytest.raises(InputError, match="is of an older version.*what budget.log says") as it:
        State(folder, DEVICE)
    assert "\n" not in str(it.value)


def test_a_full_disk_leaves_whole_lines_and_no_answer(nodes, small_files):
    answered(nodes)
    with small_files(), pytest.raises(OSError) as caught:
        answered(nodes, 2)
    assert caught.value.filename.endswith("budget.log")
    nodes.states[DEVICE].close()
    assert len(State(nodes.states[DEVICE].folder, DEVICE).budget.entries) == 1


def test_a_budget_s_file_can_be_read_by_people(nodes):
    answered(nodes)
    content, _, digest = (nodes.states[DEVICE].folder / "budget.log").read_text().rpartition("  ")
    told = json.loads(content)
    assert (told["round"], told["budget"], len(digest.strip())) == (1, "inf", 64)
    assert told["epsilon"] == pytest.approx(EPSILONS[0], abs=2e-3)


def test_lines_wait_for_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(states.os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor)))
    Log(tmp_path / "a.log").append({"a": 1}, {"b": 2})
    assert synced[0].st_size == (tmp_path / "a.log").stat().st_size


@pytest.mark.parametrize(
    "changes",
    [{"privacy.mechanism": "gradient"}, {"privacy.downlink_noise": True}],
    ids=["steps", "broadcasts"],
)
def test_servers_that_are_started_again_hand_down_the_same_noise(tmp_path, changes):
    nodes = guarded_tree(
        tmp_path,
        {"topology.fanouts": [1, 4], "topology.trust.ratios": [1.0], "training.rounds": 1},
        changes,
    )
    start = nodes.experiment.model.initial_vector()
    device, calls = nodes.of["device-1"], []
    compute = device.compute

    def dies_at_the_second(question):
        calls.append(question.place)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return compute(question)

    device.compute = dies_at_the_second
    with pytest.raises(KeyboardInterrupt):
        nodes.round(1, start)
    nodes.again("server-1-0")
    got = nodes.round(1, start)
    assert torch.equal(nodes.round(1, start), got), "answers are those that were given"


def test_what_nodes_have_signed_is_a_chain(tmp_path):
    nodes = guarded_tree(tmp_path, {"training.rounds": 2}, REHEARSAL)
    nodes.run()
    below = nodes.servers["cloud"].links.children[0].guard
    said = [read(entry["said"]) for entry in below.state.places.entries]
    assert [each.number for each in said] == list(range(len(said))) and broken_chain(said) is None
    assert broken_chain([said[0], said[0]]) is said[0]
    assert all(each.content["node"] == "server-1-0" for each in said)
