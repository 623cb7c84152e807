"""The privacy card: what it says, and that both its forms say it."""

import math
import re

import pandas as pd
import pytest

from m2fdp.core.privacy.mechanisms import MECHANISMS
from m2fdp.reporting.cards import EXPENDABLE, privacy_card

SUBJECT = {
    "algorithm": "M²FDP",
    "seed": 1,
    "dataset": "digits",
    "records": 1000,
    "evaluated": 250,
    "evaluated_on": "test",
    "records_a_device": (19, 21),
    "devices": 50,
    "layers": [(10, 4)],  # servers, and those of them that are trusted
    "model": "softmax",
    "parameters": 650,
    "features": "pixels",
    "local_steps": 4,
    "partition": "iid",
}
PROMISED = {
    "guarantee": "verified",
    "mechanism": "gradient",
    "calibration": "accountant",
    "epsilon_nominal": 2.0,
    "epsilon_verified": 1.99901,
    "delta": 1e-5,
    "clipping_norm": 1.0,
    "accountant": "dp-accounting",
    "unit": "record",
    "adjacency": "add_remove",
    "distrusted": ["cloud", "servers"],
    "epsilon_by_observer": {"servers": 1.99901, "cloud": 1.5, "uplinks": "inf", "siblings": 2.5},
    "assumptions": ["<servers> are honest", "the seed is secret"],
    "outside_the_promise": ["250 test records lie in clear with the cloud"],
    "rounds": 30,
    "rounds_planned": 40,
}
REACHED = {"rounds": 30, "accuracy": 0.8125, "loss": 0.5, "energy_j": 7.05, "delay_s": 24.4}
LEDGER = pd.DataFrame(
    [
        ("a", 20, "servers", 1.99901, "noised gradients"),
        ("b", 30, "servers", 0.5, "sums"),
        ("a", 20, "uplinks", math.inf, "gradients in clear"),
        ("a", 20, "cloud", 1.5, "means"),
        ("a", 20, "siblings", 2.5, "models"),
    ],
    columns=["position", "devices", "kind", "epsilon", "sees"],
)


def card(promised=PROMISED, reached=REACHED, ledger=LEDGER):
    return privacy_card(SUBJECT, promised, reached, ledger, "kedro run --params=seed=1", "abc123")


def test_it_says_all_that_must_be_judged():
    text = card().markdown()
    for said in (
        "M²FDP on digits, seed 1",
        "81.2%",  # of 250 records, 203.125 rounded
        "50 devices below 10 servers, 4 of them trusted",
        "0.8125",
        "7.05 J",
        "24.4 s",
        "2.00 (verified)",  # 1.99901 rounded up
        "1e-05",
        "at most 7.39 times",  # e^1.99901 = 7.3818, rounded up
        "the cloud and untrusted servers",
        "the seed is secret",
        "250 test records lie in clear",
        "30 of 40 planned",
        "kedro run --params=seed=1",
        "abc123",
    ):
        assert said in text, said


def test_who_could_learn_more_is_said_and_nobody_else():
    text = card().markdown()
    (line,) = re.findall(r"does not protect against these, who could learn more: (.*)", text)
    assert line == "**eavesdropper on uplinks (ε ∞), devices of the same server (ε 2.5)**."
    only_servers = PROMISED | {"epsilon_by_observer": {"servers": 1.99901}}
    assert (
        "Nobody learns more than those whom the run protects against."
        in card(only_servers).markdown()
    )


def test_a_table_tells_about_how_many_devices_each_observer_learns_most():
    text = card().markdown()
    assert "| untrusted servers | yes | 2.00 | 20 | noised gradients |" in text
    assert "| eavesdropper on uplinks |  | ∞ | 20 | gradients in clear |" in text


@pytest.mark.parametrize(
    ("mechanism", "noised"),
    [
        ("gradient", "every local step's gradient"),
        ("upload", "every model that leaves the device and trusted servers"),
        ("weights", "clipped weights that leave the device and trusted servers"),
    ],
)
def test_what_is_noised_follows_from_what_the_mechanism_is(monkeypatch, mechanism, noised):
    """Whatever its name."""
    monkeypatch.setitem(MECHANISMS, "own", MECHANISMS[mechanism])
    for name in (mechanism, "own"):
        assert f"| noise on | {noised} |" in card(PROMISED | {"mechanism": name}).markdown()


def test_a_formula_that_promises_more_than_it_keeps_is_named():
    weak = PROMISED | {"epsilon_verified": 51.4}
    assert "does not keep that" in card(weak).markdown()
    assert "does not keep that" not in card().markdown()


def test_infinite_epsilon_is_no_number_of_times():
    text = card(PROMISED | {"epsilon_verified": "inf"}).markdown()
    assert "∞ (verified)" in text and "e^ε times" in text


def test_no_privacy_is_said_in_the_first_sentence():
    no_promise = {"guarantee": "none", "note": "no clipping and no noise"}
    text = card(no_promise, ledger=None).markdown()
    assert "keeps nothing private" in text.split("\n\n")[1]
    assert "Nothing: no clipping and no noise." in text and "∞ for everybody" in text


def test_what_was_not_trained_has_no_accuracy():
    text = card(reached=None).markdown()
    assert "trains none" in text and "accuracy" not in text


def test_figures_come_below_what_was_reached():
    text = card().markdown(["Figures: here."])
    assert text.index("24.4 s") < text.index("Figures: here.") < text.index("## What is promised")


def test_a_short_card_lacks_what_can_best_be_missed_and_keeps_the_command():
    whole = card().body()
    assert card().shortened(len(whole)) == whole
    short = card().shortened(len(whole) - 1)
    assert EXPENDABLE[0] not in short and EXPENDABLE[1] in short
    assert "kedro run --params=seed=1" in short
    assert len(card().shortened(300)) == 300


def test_a_model_that_answers_one_class_is_said_first():
    answers = "one class only, 0: its accuracy is the share of that class, 0.812"
    for promised in (PROMISED, {"guarantee": "none"}):
        text = card(promised, REACHED | {"answers": answers}).markdown()
        assert f"It answers **{answers}**." in text.split("\n\n")[1]
        assert "answers" not in card(promised).markdown()
