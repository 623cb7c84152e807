"""Metrics: each declared once, and a user's own beside them."""

import ast
import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests import own_metrics as theirs
from tests.builders import digits, experiment_of

import m2fdp
from m2fdp import load_config
from m2fdp.claims.measures import MEASURES, check_own_metrics
from m2fdp.core import metrics
from m2fdp.core.config import released
from m2fdp.core.engine.training import Checkpointing, RoundRecord
from m2fdp.core.errors import InputError
from m2fdp.own.metrics import own_metrics

PACKAGE = Path(m2fdp.__file__).parent
OWN = "training.metrics"
SMALL = {"training.rounds": 2, "topology.fanouts": [2, 2], "privacy.epsilon": 1e5}
# Words that say something else elsewhere: columns of other tables, keys and values of a file.
WORDS = {
    *("accuracy", "loss", "epsilon", "score", "v", "noise", "devices", "zones", "local_steps"),
    *("epsilon_nominal", "epsilon_verified"),  # of a promise, in its files
    *("s_trusted", "s_untrusted", "epsilon_by_h", "epsilon_by_h_with_sums"),  # of rooms' own tables
    *("energy_to_target", "delay_to_target"),  # what a study's search chooses by
}


@pytest.fixture(autouse=True)
def forgotten():
    """What a test has loaded is no metric of the next one's."""
    yield
    metrics.OWN.clear()
    theirs.calls.clear()


def named(*names: str) -> list[str]:
    return [f"tests.own_metrics:{name}" for name in names]


def literals(path: Path) -> set[object]:
    """All constants of a module but docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value for node in nodes if id(node) not in texts}


def test_a_metrics_name_is_written_where_it_is_declared_and_nowhere_else():
    declared = {"core/metrics.py", "claims/measures.py"}
    every = {*metrics.names_of(metrics.OF_CORE), *MEASURES} - WORDS
    again = {
        place: every & literals(path)
        for path in PACKAGE.rglob("*.py")
        if (place := path.relative_to(PACKAGE).as_posix()) not in declared
    }
    assert not {place: names for place, names in again.items() if names}


def test_a_rounds_record_has_what_is_declared_of_a_round():
    names = [field.name for field in dataclasses.fields(RoundRecord)]
    assert names == ["round", *metrics.names_of(metrics.EVALUATED), "own"]


def test_own_metrics_are_measured_at_every_evaluation_and_change_nothing_else():
    plain = experiment_of(SMALL)
    ours = experiment_of(SMALL, {OWN: named("BALANCED", "WORST")})
    assert released(ours.config) == released(plain.config), "noise keeps its key"
    expected, trained = plain.train(), ours.train()
    pd.testing.assert_frame_equal(
        trained.metrics.drop(columns=["balanced", "worst"]), expected.metrics
    )
    for name, tensor in expected.state_dict.items():
        assert tensor.equal(trained.state_dict[name])
    assert list(trained.metrics)[-2:] == ["balanced", "worst"]
    found = ours.evaluate(trained.state_dict)
    labels = digits().labels[ours.held_out]
    hits = found.predictions.numpy() == labels
    recalls = [hits[labels == label].mean() for label in range(10)]
    assert trained.metrics["balanced"].iloc[-1] == pytest.approx(np.mean(recalls))
    assert found.own == dict(trained.metrics[["balanced", "worst"]].iloc[-1])
    rests_on = ours.summary()["own_code"]
    assert [(part["name"], part["enforced"]) for part in rests_on] == [
        (name, True) for name in ours.config.training.metrics
    ]
    assert ours.summary()["guarantee"] == "verified"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("RAISES",), r"fails on 359 held-out records: ZeroDivisionError.*own_metrics.py, line"),
        (("VECTOR",), r"makes an array of shape \(3,\) of 359 held-out records; valid: one number"),
        (("TEXT",), "makes 'good' of 359 held-out records; valid: one number"),
        (("NOTHING",), "makes None of 359"),
        (("NAN",), "makes nan of 359 held-out records; valid: a finite number"),
        (("OVERWRITES",), "fails on 359 held-out records: ValueError.*read-only"),
        (("NO_FUNCTION",), r"has no function of labels and scores \(Metric.value\)"),
        (("NO_METRIC",), "is no Metric but function"),
        (("LOSS",), "is called loss, as something else in tables is; name it otherwise"),
        (("ARM",), "is called arm"),
        (("SAME_LABEL",), "is called accuracy, as something else in tables is"),
        (("BALANCED", "AGAIN"), "is called balanced"),
        (("MISSING",), "can't be imported: AttributeError"),
        (("DECISION",), "is called eta, as a decision is; name it otherwise"),
    ],
)
def test_bad_ones_end_in_one_line_before_training(names, message):
    told = {"training.accumulated_noise": 1e-6}  # which tells eta as a decision of every round
    with pytest.raises(InputError, match=message) as refused:
        experiment_of(SMALL, told, {OWN: named(*names)}).train()
    assert refused.value.key == OWN and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "key"),
    [({"name": "AUC"}, "name"), ({"value": 3}, "value"), ({"digits": -1}, "digits")],
)
def test_a_metric_that_can_be_none_is_refused_as_it_is_made(fields, key):
    with pytest.raises(InputError, match=f"Metric.{key}"):
        metrics.Metric(**{"name": "auc"} | fields)


@pytest.mark.parametrize("name", ["AUC", "a b:C", "quality:AUC:x"])
def test_a_name_of_another_form_is_refused(name):
    with pytest.raises(InputError, match="valid: package.module:NAME"):
        load_config({OWN: [name]})


def test_what_fails_later_stops_training_and_keeps_the_rounds_before():
    kept = []
    experiment = experiment_of(SMALL, {"training.rounds": 9, OWN: named("FAILS_LATER")})
    with pytest.raises(InputError, match="makes nan .*; round 2 is saved; mend it and go on with"):
        experiment.train(checkpointing=Checkpointing(5, kept.append))
    assert [len(progress.records) for progress in kept] == [2]


def test_records_that_devices_hold_out_are_shown_to_no_metric_of_ones_own():
    holding = {"partition.held_out_by": "devices", "partition.validation_fraction": 0.1}
    with pytest.raises(InputError, match="needs validation records that the cloud holds; use"):
        experiment_of(SMALL, holding, {OWN: named("BALANCED")})


def test_what_a_study_calls_a_measure_is_no_name_of_an_own_metric():
    own_metrics(named("BALANCED"))
    check_own_metrics()
    own_metrics(named("VOLATILITY"))
    with pytest.raises(InputError, match="volatility.*is what studies call a measure"):
        check_own_metrics()
