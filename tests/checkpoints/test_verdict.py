"""The one verdict of a run: it is kept whole, only lowered, and never verified where it is lost."""

import json

import pytest

from m2fdp import load_config
from m2fdp.checkpoints.verdict import VERDICT, Verdict, keep, kept, lowered, run_digest, settle
from m2fdp.core.formatting import lowest

GOOD = Verdict("a run", "its records", True, ())
BAD = Verdict("a run", "its records", True, ("it rains", "it pours"))
PROMISED = {
    "guarantee": "verified",
    "epsilon_nominal": 1.0,
    "epsilon_verified": 0.9,
    "assumptions": ["trust", "it pours"],
}


@pytest.mark.parametrize("verdict", [GOOD, BAD, GOOD.joined(BAD), Verdict("x", "", False, ())])
def test_it_comes_back_as_it_was(tmp_path, verdict):
    keep(tmp_path, verdict)
    assert kept(tmp_path) == verdict


def told(**changes):
    fields = {"run": "a", "records": "b", "private": True, "conditions": ["x"], "before": []}
    return json.dumps({"guarantee": "conditional", **fields, **changes})


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        told()[:-30],
        "[]",
        "null",
        b"\xff".decode("latin-1"),
        told(conditions=[]),
        told(guarantee="verified"),
        told(conditions=None),
        told(before=3),
        told(private=False),
        json.dumps({"guarantee": "verified"}),
    ],
)
def test_what_is_missing_or_damaged_is_no_verdict(tmp_path, content):
    if content is not None:
        (tmp_path / VERDICT).write_text(content, encoding="latin-1")
    assert kept(tmp_path) is None


def test_until_its_own_model_is_there_a_run_rests_on_what_the_former_one_did(tmp_path):
    keep(tmp_path, GOOD.joined(BAD))
    assert kept(tmp_path).guarantee == "conditional"
    assert kept(tmp_path).rests_on == BAD.conditions
    settle(tmp_path)
    assert kept(tmp_path) == GOOD
    assert GOOD.joined(Verdict("another", "", True, ("it rains",))) == GOOD


def test_a_promise_is_only_lowered():
    found = lowered(PROMISED, BAD.conditions)
    assert list(found) == ["guarantee", "epsilon_nominal", "epsilon_conditional", "assumptions"]
    assert found["guarantee"] == "conditional"
    assert found["assumptions"] == ["it rains", "it pours", "trust"]
    assert lowered(found, BAD.conditions) == lowered(found, ()) == found
    assert lowered({"guarantee": "none"}, BAD.conditions) == {"guarantee": "none"}


@pytest.mark.parametrize(
    ("guarantees", "whole"),
    [
        (["verified", "verified"], "verified"),
        (["verified", "conditional"], "conditional"),
        (["conditional", "none"], "none"),
        (["verified", ""], "conditional"),
        ([], "conditional"),
    ],
)
def test_several_runs_promise_what_the_worst_does(guarantees, whole):
    assert lowest(guarantees) == whole


def test_a_run_is_told_by_what_its_noise_is_keyed_by():
    usual = run_digest(load_config({}))
    assert usual == run_digest(load_config({"threads": 2, "resume": True, "cell": "other"}))
    for change in ({"seed": 1}, {"privacy.epsilon": 2.0}):
        assert run_digest(load_config(change)) != usual
