"""Sums that hide their terms, between nodes: the simulator's bytes, whoever is killed; who lies, or
is missed, ends in a line; and no server reads what one child puts in."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.deployment.test_nodes import check_equal
from tests.deployment.trees import REHEARSAL, guarded_tree, identity, planned, tree_of

from m2fdp.core.errors import InputError
from m2fdp.deployment import masked, masked_messages
from m2fdp.deployment.links import STEPS, Place, Refusal, to_bytes
from m2fdp.deployment.masked_messages import pack, unpack
from m2fdp.deployment.node_plan import ChildrenError
from m2fdp.deployment.process import promised, told_of
from m2fdp.secure_aggregation import keys
from m2fdp.secure_aggregation.active import text_of_keys
from m2fdp.secure_aggregation.messages import UnmaskRequest

FULL = pytest.mark.full
MASKS = {"secure_aggregation.layers": [1, 2], "secure_aggregation.protocol": "masks"}
STAR = {
    **MASKS,
    "topology.fanouts": [4],
    "topology.trust.ratios": [],
    "training.local_aggregation": None,
    "secure_aggregation.layers": [1],
}
DEEP = {
    **MASKS,
    "topology.fanouts": [2, 3, 2],
    "topology.trust.ratios": [0.5, 0.5],
    "secure_aggregation.layers": [1, 2, 3],
}
ONE = {**STAR, "training.rounds": 1}
# Below an edge server; half of them are trusted, so that each device's own noise, or its server's,
# meets the target alone.
SKIP = {
    **MASKS,
    "topology.fanouts": [2, 4],
    "training.local_aggregation": None,
    "training.rounds": 1,
    "secure_aggregation.layers": [2],
    "deployment.on_missing": "skip",
}
NAMES = [f"device-{j}" for j in range(4)]


@pytest.mark.parametrize(
    "algorithm", ["m2fdp", *(pytest.param(one, marks=FULL) for one in ("hfl_dp", "ldp"))]
)
@pytest.mark.parametrize("tree", [MASKS, DEEP, STAR], ids=["1-2-4", "1-2-6-12", "star"])
def test_bytes_and_ledger_are_the_simulator_s(algorithm, tree):
    nodes = check_equal({**tree, "algorithm": algorithm})
    kinds = {
        asked.place.kind for server in nodes.servers.values() for _, asked, _ in server.links.heard
    }
    assert kinds == set(STEPS), "nobody was asked for a model in clear"


@pytest.mark.parametrize(
    "changes",
    [
        {**MASKS, "secure_aggregation.layers": [2]},
        {**MASKS, "secure_aggregation.layers": [1]},
        {**STAR, "secure_aggregation.noise": "shared"},
        {**STAR, "algorithm": "pedpfl"},
        {**STAR, "topology.weights": "samples", "threat.colluding": 1},
        {**MASKS, "training.proximal": 0.1},
        {**STAR, "training.step_size": "inverse_sqrt", "privacy.unit": "device"},
    ],
    ids=str,
)
def test_other_sums_are_the_simulator_s_too(changes):
    check_equal(changes)


def parent_of(nodes):
    """The server of devices 0 to 3."""
    return nodes.servers[nodes.node(NAMES[0]).parent]


def summed(nodes):
    """What the devices' parent ends in after the steps of the first round, (M,)."""
    asked = nodes.question(nodes.experiment.model.initial_vector())
    return parent_of(nodes).message(asked)[0][0]


def plain_messages(nodes, start):
    """What each device would have sent, with its noise: (n, M); the draws of a rehearsal repeat."""
    asked = nodes.question(start)
    return torch.cat([nodes.of[name].worker.compute(asked) for name in NAMES])


def heard_of(nodes, child=0):
    """What a child was asked, and replied, by step."""
    heard = parent_of(nodes).links.heard
    return {asked.place.kind: (asked, reply) for number, asked, reply in heard if number == child}


def reads_a_child():
    """Whether a parent that looks at all that it hears finds one child's update in its words."""
    nodes = tree_of(REHEARSAL, ONE)
    start = nodes.experiment.model.initial_vector()
    summed(nodes)
    updates = (plain_messages(nodes, start) - start).numpy()
    words = [np.frombuffer(heard_of(nodes, u)["masked"][1].content, "<i4") for u in range(4)]
    return any(abs(np.corrcoef(words[u], updates[u])[0, 1]) > 0.5 for u in range(4))


def test_a_parent_reads_no_child_in_its_words_and_of_a_build_without_masks_each(monkeypatch):
    """640 words: a correlation of 0.5 with uniform ones has a chance below 1e-40."""
    assert not reads_a_child()
    monkeypatch.setattr(keys, "keystream", lambda key, n_words: np.zeros(n_words, np.uint32))
    assert reads_a_child()


# Who is missed.


def missing(nodes, *gone):
    """The parent's children are not there, by number, from a step on."""
    since = {number: STEPS.index(kind) for number, kind in gone}

    def meddle(number, question):
        kind = STEPS.index(question.place.kind)
        return question if kind < since.get(number, len(STEPS)) else None

    parent_of(nodes).links.meddle = meddle


@pytest.mark.parametrize("kind", STEPS)
def test_who_is_missed_before_its_words_is_done_without_and_after_them_in_the_sum(kind):
    nodes = tree_of(REHEARSAL, SKIP)
    start = nodes.experiment.model.initial_vector()
    missing(nodes, (1, kind))
    got = summed(nodes)
    updates = plain_messages(nodes, start) - start
    if kind in ("keys", "shares", "masked"):
        updates[1] = 0
    torch.testing.assert_close(got, start + 0.25 * updates.sum(0), atol=1e-4, rtol=0)
    assert set(nodes.missed) == {"device-1"}


@pytest.mark.parametrize("kind", STEPS)
def test_a_sum_of_too_few_is_not_read(kind):
    nodes = tree_of(REHEARSAL, SKIP)
    start = nodes.experiment.model.initial_vector()
    missing(nodes, (1, kind), (3, kind))
    torch.testing.assert_close(summed(nodes), start)
    assert nodes.missed[-1] == "the sum of 2 senders"


def test_noise_that_all_share_is_not_done_without():
    """Nor does a list of survivors pass that lacks somebody whose noise is counted on."""
    with pytest.raises(InputError, match="deployment.on_missing = 'skip': does without"):
        planned({**ONE, "secure_aggregation.noise": "shared", "deployment.on_missing": "skip"})
    nodes = tree_of(REHEARSAL, {**ONE, "secure_aggregation.noise": "shared"})
    assert "3 survivors, and 4 are counted on" in lying(nodes, "survivors", leaves_one_out)


# Who lies.


def leaves_one_out(content):
    return masked_messages.pack_request(UnmaskRequest((0, 1, 2), (3,)))


def lying(nodes, kind, change):
    """The first child is asked something else at a step; what is told of it."""

    def meddle(number, question):
        if number or question.place.kind != kind:
            return question
        return replace(question, content=change(question.content))

    parent_of(nodes).links.meddle = meddle
    if nodes.cloud.node.recomputed.settings.on_missing == "skip":
        summed(nodes)
        return "".join(nodes.missed)
    with pytest.raises(ChildrenError) as caught:
        summed(nodes)
    return str(caught.value)


def false_roster(nodes, folder, how):
    """A server's own keys in the place of device-1's."""
    server = identity(folder, "cloud")
    node = nodes.node("device-1")
    terms = masked.sum_terms(node, 1, np.arange(4), Place(1, 1, 4, "keys"))

    def change(roster):
        parts = unpack(roster, "roster")
        public, signature, certificate = masked_messages.unpack_keys(1, parts[1])
        own = replace(public, sealing=bytes(range(32)), masking=bytes(range(1, 33)))
        if how == "unsigned":
            parts[1] = masked_messages.pack_keys(own, signature, certificate)
        elif how == "signed by the server":
            made = server.sign(text_of_keys(terms, own))
            parts[1] = masked_messages.pack_keys(own, made, server.certificate)
        elif how == "one less":
            del parts[1]
        else:
            parts[4] = parts[1]
        return pack(parts.items())

    return change


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("unsigned", "the keys of member 1: not signed by it for this round and grid"),
        ("signed by the server", "not with a certificate of device-1 by the authority"),
        ("one less", "3 senders are left in cloud"),
        ("one more", "no child of this node's parent"),
    ],
)
def test_a_false_roster_is_refused_in_one_line(tmp_path, how, words):
    nodes = guarded_tree(tmp_path, {**STAR, "training.rounds": 2})
    line = lying(nodes, "shares", false_roster(nodes, tmp_path, how))
    assert words in line and line.startswith("device-0 refuses: round 1")


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("survivors", leaves_one_out, "have signed its list of survivors"),
        ("unmasking", lambda content: content[:-1], "bytes that are no signatures"),
        ("masked", lambda content: content.replace(content[10:30], bytes(20)), "sealed for member"),
    ],
)
def test_a_server_that_lies_to_one_child_is_refused_in_one_line(tmp_path, kind, change, words):
    """With 4 senders of whom 3 must be left, nobody being counted on for all."""
    line = lying(guarded_tree(tmp_path, SKIP), kind, change)
    assert words in line and line.startswith("device-0 (round 1") and "\n" not in line


@pytest.mark.parametrize("mode", ["skip", "stop"])
def test_a_child_that_lies_is_told_of_in_one_line_and_done_without_where_others_are(tmp_path, mode):
    nodes = guarded_tree(tmp_path, SKIP, {"deployment.on_missing": mode})
    compute = nodes.of["device-2"].compute

    def cut(question):
        return compute(question)[: -4 if question.place.kind == "masked" else None]

    nodes.of["device-2"].compute = cut
    words = "it has sent bytes that are no model of 640 finite numbers"
    if mode == "skip":
        summed(nodes)
        assert nodes.missed[0] == f"device-2 ({words})"
        return
    with pytest.raises(ChildrenError, match=f"device-2 refuses: {words}"):
        summed(nodes)


@pytest.mark.parametrize("which", ["signature", "certificate"])
def test_a_child_whose_keys_nobody_would_take_is_the_only_one_that_is_missing(tmp_path, which):
    """All others refused the roster, each in a line, and the run was over."""
    nodes = guarded_tree(tmp_path, SKIP)
    compute = nodes.of["device-2"].compute

    def lies(question):
        content = compute(question)
        if question.place.kind != "keys":
            return content
        public, signature, certificate = masked_messages.unpack_keys(2, content)
        if which == "signature":
            return masked_messages.pack_keys(public, signature[::-1], certificate)
        return masked_messages.pack_keys(public, signature, identity(tmp_path, "cloud").certificate)

    nodes.of["device-2"].compute = lies
    summed(nodes)
    words = "it has sent keys that are not signed by its certificate for this sum"
    assert nodes.missed == [f"device-2 ({words})"]


# What is asked again, and who is started again.


def test_each_step_gets_the_same_bytes_again_and_no_other_question(tmp_path):
    nodes = guarded_tree(tmp_path, ONE)
    summed(nodes)
    heard = heard_of(nodes)
    assert list(heard) == list(STEPS)
    for again in (False, True):
        if again:
            nodes.again("device-0")
        for asked, reply in heard.values():
            answered = nodes.of["device-0"].answer(asked)
            assert (answered.content, answered.statement) == (reply.content, reply.statement)
            changed = bytearray(asked.content)
            changed[0] ^= 1
            other = nodes.of["device-0"].answer(replace(asked, content=bytes(changed)))
            assert isinstance(other, Refusal) and "would be a second release" in other.reason
    spent = nodes.states["device-0"].budget.entries
    assert [entry["round"] for entry in spent] == [1]


@pytest.mark.parametrize("kind", STEPS[1:])
def test_a_step_that_was_not_come_to_is_refused(tmp_path, kind):
    nodes = guarded_tree(tmp_path, ONE)
    summed(nodes)
    asked, _ = heard_of(nodes)[kind]
    reply = guarded_tree(tmp_path / "fresh", ONE).of["device-0"].answer(asked)
    assert isinstance(reply, Refusal) and "nobody has asked for keys before" in reply.reason


def test_a_model_is_not_sent_to_who_is_to_read_a_sum(tmp_path):
    nodes = guarded_tree(tmp_path, ONE)
    asked = nodes.question(nodes.experiment.model.initial_vector())
    reply = nodes.of["device-0"].answer(asked)
    assert isinstance(reply, Refusal) and "the plan has no question of" in reply.reason


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("name", ["device-0", "server-1-0", "cloud"])
def test_who_is_killed_between_steps_goes_on_to_the_same_bytes(tmp_path, kind, name):
    """A member before it is asked; a server while it asks."""
    changes = (MASKS, {"training.rounds": 1}, REHEARSAL)
    start = planned(*changes)[0].model.initial_vector()
    undisturbed = tree_of(*changes).round(1, start)
    nodes, killed = guarded_tree(tmp_path, *changes), []
    parent = "server-1-0" if name == "device-0" else name

    def meddle(number, question):
        if question.place.kind == kind and not killed and number == (name != "device-0"):
            killed.append(name)
            if name != "device-0":
                raise KeyboardInterrupt
            nodes.again(name)
        return question

    nodes.servers[parent].links.meddle = meddle
    if name != "device-0":
        with pytest.raises(KeyboardInterrupt):
            nodes.round(1, start)
        nodes.again(name)
    got = nodes.round(1, start)
    assert killed and to_bytes(got[None]) == to_bytes(undisturbed[None])


@pytest.mark.parametrize("kind", STEPS)
def test_a_server_that_is_started_again_keeps_to_who_was_done_without(tmp_path, kind):
    """device-3 is back, and is not asked for what the others have done without it."""
    nodes = guarded_tree(tmp_path, SKIP, REHEARSAL)
    undisturbed = tree_of(SKIP, REHEARSAL)
    missing(undisturbed, (3, "masked"))
    expected, killed = summed(undisturbed), []

    def meddle(number, question):
        if number == 0 and question.place.kind == kind and not killed:
            killed.append(kind)
            raise KeyboardInterrupt
        after = STEPS.index(kind) > STEPS.index("masked")
        gone = number == 3 and question.place.kind == "masked" and (not killed or not after)
        return None if gone else question

    parent_of(nodes).links.meddle = meddle
    with pytest.raises(KeyboardInterrupt):
        summed(nodes)
    nodes.again(parent_of(nodes).node.name)
    assert torch.equal(summed(nodes), expected)


# What its operator knows before.


@pytest.mark.parametrize(("changes", "least"), [(ONE, "4 of 4"), (SKIP, "3 of 4")])
def test_an_operator_is_told_of_how_many_a_sum_is(changes, least):
    node = tree_of(changes).node("device-0")
    told = list(told_of(node))
    assert f"sends models to {node.parent}, as masked words, 1 in the first round" in told
    assert f"{node.parent} reads their sum, of at least {least} senders" in told
    assert any("believe no server about keys" in line for line in promised(node)["assumptions"])
