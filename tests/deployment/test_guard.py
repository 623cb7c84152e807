"""The guard: the same bytes for the same question, no other question, no more than the budget; and
a state that is what it was, or refused."""

import json
import os
import shutil

import pytest
import torch
from tests.deployment.trees import REHEARSAL, guarded_tree, lines_of

from m2fdp.core.engine.rules import TooLongError
from m2fdp.core.errors import InputError
from m2fdp.deployment import state as states
from m2fdp.deployment.links import Answer, Place, Question, Refusal, to_bytes
from m2fdp.deployment.node_plan import RefusedError
from m2fdp.deployment.state import Log, State
from m2fdp.deployment.statements import read

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


def question_of(nodes, round_=1, value=0.0, first=1, last=4, kind="model", plan=None):
    vector = torch.full((1, nodes.experiment.model.n_parameters), value)
    place = Place(round_, first, last, kind)
    return Question(plan or nodes.plan.digest, place, to_bytes(vector))


def answered(nodes, *question, **changes):
    return nodes.of[DEVICE].answer(question_of(nodes, *question, **changes))


def refused(nodes, words, *question, **changes):
    reply = answered(nodes, *question, **changes)
    assert isinstance(reply, Refusal) and words in reply.reason and "\n" not in reply.reason
    return reply


def test_the_same_question_gets_the_same_bytes_and_another_is_refused_for_ever(nodes):
    first = answered(nodes)
    device = nodes.of[DEVICE]
    assert answered(nodes).content == first.content
    refused(nodes, "would be a second release", value=0.1)
    nodes.again(DEVICE)
    refused(nodes, "would be a second release", value=0.1)
    again = answered(nodes)
    assert (again.content, again.statement) == (first.content, first.statement)
    assert device.compute(question_of(nodes)) == first.content, "it has one draw for a question"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"last": 3}, "the plan has no question of round 1, steps 1 to 3"),
        ({"first": 2}, "the plan has no question of"),
        ({"kind": "gradient"}, "the plan has no question of"),
        ({"round_": 4}, "the plan has no question of round 4"),
        ({"round_": 0}, "the plan has no question of round 0"),
        ({"value": float("nan")}, "is not 640 finite numbers"),
        ({"plan": bytes(32)}, "another plan"),
    ],
    ids=str,
)
def test_what_the_plan_does_not_ask_is_refused(nodes, changes, words):
    refused(nodes, words, **changes)
    assert spent(nodes) == []


def test_rounds_go_forward_only(nodes):
    answered(nodes, 2)
    refused(nodes, "round 1, steps 1 to 4, model is before what was asked last", 1)
    answered(nodes, 3)
    refused(nodes, "no longer kept", 2)


def test_a_budget_ends_what_it_does_not_cover_and_counts_earlier_runs(tmp_path):
    nodes = guarded_tree(tmp_path, ONE, budget=3.5)
    assert isinstance(answered(nodes, 1), Answer) and isinstance(answered(nodes, 2), Answer)
    refused(nodes, "round 3 would bring its epsilon to 4 and its budget is 3.5", 3)
    assert spent(nodes) == [1, 2]
    epsilons = [entry["epsilon"] for entry in nodes.states[DEVICE].budget.entries]
    assert epsilons == pytest.approx(EPSILONS[:2], abs=2e-3)
    nodes.close()
    other = guarded_tree(tmp_path, ONE, {"seed": 5}, budget=3.5)
    refused(other, "with 3.172 of earlier runs,", 1)
    other.close()
    richer = guarded_tree(tmp_path, ONE, {"seed": 5}, budget=5.4)
    assert isinstance(answered(richer, 1), Answer)
    last = richer.states[DEVICE].budget.entries[-1]
    assert last["in_all"] == pytest.approx(EPSILONS[0] + EPSILONS[1], abs=4e-3)
    assert last["delta_in_all"] == 2 * last["delta"]


def test_a_process_that_dies_between_bytes_and_line_answers_as_before(nodes, monkeypatch):
    sent = []
    keep = State.keep

    def keeps_and_dies(state, book, what, content, waits):
        keep(state, book, what, content, waits)
        if what.startswith("up-"):
            sent.append(content)
            raise KeyboardInterrupt

    monkeypatch.setattr(State, "keep", keeps_and_dies)
    with pytest.raises(KeyboardInterrupt):
        answered(nodes)
    monkeypatch.undo()
    nodes.again(DEVICE)
    refused(nodes, "second release", value=0.1)
    assert sent[0].endswith(answered(nodes).content)


def spent(nodes):
    return [entry["round"] for entry in nodes.states[DEVICE].budget.entries]


def killed_at_work(nodes):
    """What a device had computed when it was killed; it is started again."""
    drawn, compute = [], nodes.of[DEVICE].compute

    def is_killed(question):
        assert spent(nodes) == [1], "before anything is computed"
        drawn.append(compute(question))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nodes.of[DEVICE].guard.answer(question_of(nodes), is_killed)
    nodes.again(DEVICE)
    return drawn[0]


def test_a_device_that_is_killed_at_work_draws_the_same_again_for_this_question_alone(nodes):
    """Of draws anew each crash would show a bit; ten of them were worth epsilon 8.5 behind 4."""
    first, second = killed_at_work(nodes), killed_at_work(nodes)
    assert spent(nodes) == [1], "it is on the disk"
    refused(nodes, "was begun for another question", value=0.1)
    assert first == second == answered(nodes).content
    assert spent(nodes) == [1]


def test_no_two_questions_have_draws_together(nodes):
    """Else whoever has a state from an earlier day answer another question takes the noise off."""
    device = nodes.of[DEVICE]
    asked = [question_of(nodes, *one) for one in ((1, 0.0), (1, 1e-6), (2, 0.0))]
    noises = [device.worker.message(one)[1][0] for one in asked]
    assert float(torch.corrcoef(torch.stack(noises)).triu(1).abs().max()) < 0.2
    assert torch.equal(device.worker.message(asked[0])[1][0], noises[0])


def test_a_cloud_that_is_started_again_makes_the_same_of_a_round(tmp_path):
    """Also one that ended since the model was too long: its own noise was drawn anew."""
    nodes = guarded_tree(tmp_path, ONE, {"algorithm": "cdp"})
    start = nodes.experiment.model.initial_vector()
    first = nodes.round(1, start)
    nodes.again("cloud")
    assert torch.equal(nodes.round(1, start), first)
    assert nodes.cloud.node.deviations.broadcast > 0


def test_what_a_crash_has_begun_is_refused_once_its_draws_are_not_kept(nodes):
    killed_at_work(nodes)
    shutil.rmtree(nodes.states[DEVICE].folder / "kept")
    nodes.again(DEVICE)
    refused(nodes, "what it draws is no longer kept")
    refused(nodes, "what it draws is no longer kept")
    assert isinstance(answered(nodes, 2), Answer), "other rounds have draws of their own"
    refused(nodes, "is before what was asked last")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TooLongError("before a local step", 0.1, 7.0), "privacy.epsilon = 4.0: the model is 7 "),
        (RefusedError("a share was changed"), "a share was changed"),
        (ValueError("record 7\nis odd"), "model has failed; places.log of its state says why"),
    ],
    ids=["too long", "refused", "other"],
)
def test_what_fails_once_is_refused_for_ever_and_drawn_no_more(nodes, error, words):
    """A process that died of it was started again, and drew anew each time."""
    tried = []

    def fails(question):
        tried.append(question)
        raise error

    for _ in range(2):
        reply = nodes.of[DEVICE].guard.answer(question_of(nodes), fails)
        assert words in reply.reason and "\n" not in reply.reason and "record 7" not in reply.reason
        assert refused(nodes, words) == reply == refused(nodes, words, value=0.1)
        nodes.again(DEVICE)
    assert len(tried) == 1
    (line,) = (e for e in nodes.states[DEVICE].places.entries if "refused" in e)
    assert line["refused"] == reply.reason and "\n" not in line["cause"]


def test_a_disk_that_was_full_at_work_can_be_tried_again(nodes):
    def fails(question):
        raise OSError(28, "No space left on device", "kept")

    with pytest.raises(OSError):
        nodes.of[DEVICE].guard.answer(question_of(nodes), fails)
    nodes.again(DEVICE)
    assert isinstance(answered(nodes), Answer)


def test_a_model_that_is_sent_too_long_is_refused_before_anything_is_drawn(nodes):
    """A parent that lies chooses it: its device would have stepped from it, and rounded what
    records do."""
    longest = nodes.experiment.longest(nodes.of[DEVICE].guard.node.step_size(1))
    refused(nodes, "long as it is sent, and rounding moves it", value=longest)
    refused(nodes, "long as it is sent, and rounding moves it", value=1e30)
    state = nodes.states[DEVICE]
    assert state.budget.entries == state.places.entries == []
    assert isinstance(answered(nodes, value=0.9 * longest / 640**0.5), Answer)


def test_a_model_within_a_round_is_looked_at_where_all_that_it_follows_from_is_noised(tmp_path):
    """Device 0 is below an untrusted server, device 3 below a trusted one, whose mean of models in
    clear no refusal may tell of."""
    upload = {"privacy.mechanism": "upload", "topology.fanouts": [2, 2]}
    upload |= {"topology.trust.ratios": [0.5], "training.local_aggregation": {1: 2}}
    nodes = guarded_tree(tmp_path, ONE | upload)
    place = Place(1, 3, 4, "model")
    noised, in_clear = (nodes.of[f"device-{j}"].guard.node for j in (0, 3))
    assert noised.longest(place) == nodes.experiment.rules.longest_received(noised.step_size(1))
    assert noised.longest(place) < in_clear.longest(place) == float("inf")


def test_a_state_of_the_former_version_is_gone_on_with(nodes):
    """Whose places.log has answers alone."""
    first = answered(nodes)
    state = nodes.states[DEVICE]
    (line,) = (entry for entry in state.places.entries if "said" in entry)
    (state.folder / "places.log").unlink()
    (state.folder / "budget.log").unlink()
    Log(state.folder / "places.log").append(line | {"beside": "0" * 64})
    nodes.again(DEVICE)
    assert answered(nodes).statement == first.statement
    later = read(answered(nodes, 2).statement.decode())
    assert (later.number, later.content["previous"]) == (1, read(line["said"]).digest)


def test_two_processes_have_no_state_together(nodes):
    with pytest.raises(InputError, match="in use by another process"):
        State(nodes.states[DEVICE].folder, DEVICE)


def closed(nodes, rounds):
    """The folder of a device that has answered some rounds."""
    for round_ in rounds:
        answered(nodes, round_)
    nodes.states[DEVICE].close()
    return nodes.states[DEVICE].folder


DAMAGES = {
    "cut": lambda text: text[:-9],
    "changed": lambda text: text.replace('"round": 1', '"round": 2', 1),
    "less a line": lambda text: text.partition("\n")[2],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("name", ["budget.log", "places.log"])
def test_a_damaged_state_is_refused(nodes, damage, name):
    folder = closed(nodes, [1, 2])
    (folder / name).write_text(damage((folder / name).read_text()))
    with pytest.raises(InputError, match=rf"{name}, line \d"):
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


@pytest.mark.parametrize("mechanism", ["gradient", "weights"])
def test_servers_that_are_started_again_hand_down_the_same_noise(tmp_path, mechanism):
    nodes = guarded_tree(
        tmp_path,
        {"topology.fanouts": [1, 4], "topology.trust.ratios": [1.0], "training.rounds": 1},
        {"privacy.mechanism": mechanism},
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
    said = [read(line) for line in lines_of(below.state)]
    assert [each.number for each in said] == list(range(len(said)))
    before = ["", *(each.digest for each in said[:-1])]
    assert [each.content["previous"] for each in said] == before
    assert all(each.content["node"] == "server-1-0" for each in said)
