"""A number to learn: losses and their derivatives, a whole run, refusals, and predicted values."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from click.testing import CliRunner

from m2fdp import Experiment, load_config
from m2fdp.adversaries.tried_runs import Neighbour, neighbouring
from m2fdp.cli import study
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError
from m2fdp.core.metrics import leading, of_last
from m2fdp.given.loading import parse_block
from m2fdp.own.metrics import own_metrics
from m2fdp.program import main
from m2fdp.tables.encoding import encode
from m2fdp.tables.regression import MAE, R2, RMSE, linear, with_huber, with_squared
from m2fdp.tables.schema import Schema
from m2fdp.tables.table import table_of

CONTENT = {
    "label": {"column": "days", "range": [0, 60]},
    "client": "hospital",
    "columns": {"age": {"range": [20, 100]}, "grade": {"range": [0, 10]}},
}
# A step a round of all records; the squared loss bears steps below 2.
FULL = {"training.local_steps": 1, "training.batch_size": None, "training.learning_rate": 1.0}
NOT_PRIVATE = FULL | {"algorithm": "hfl", "training.rounds": 300}
PRIVATE = FULL | {
    "training.rounds": 20,
    "training.accumulated_noise": 1.0,
    "privacy.epsilon": 1.0,
    "privacy.clipping_norm": 0.5,
    "dataset.scale": "unit_norm",
}
# Clipping shows, and noise, which every backend has of its own, does not.
CLIPPED = FULL | {"privacy.clipping_norm": 0.1, "privacy.noise_multiplier": 1e-4}
CLIPPED |= {"privacy.calibration": "multiplier"}
BY_HAND = [  # score, label, squared loss and its derivative, Huber's and its
    (0.5, 0.25, 0.03125, 0.25, 0.03125, 0.25),
    (-0.5, 0.5, 0.5, -1.0, 0.5, -1.0),
    (3.0, -1.0, 8.0, 4.0, 3.5, 1.0),
    (-2.0, 1.0, 4.5, -3.0, 2.5, -1.0),
]


def days(age, grade):
    """The known relation; it stays within the range."""
    return 3 + 0.25 * (age - 20) + 3 * grade


def rows_of(n=300, **columns):
    rng = np.random.default_rng(5)
    age, grade = rng.integers(20, 100, n), np.round(10 * rng.random(n), 2)
    table = {"age": age, "grade": grade, "hospital": np.resize(["Basel", "Bern"], n)}
    return pd.DataFrame(table | {"days": days(age, grade)} | columns)


def model_of(name="linear", loss=None):
    built = linear(load_config({"model.name": "linear"}).model, (1, 1, 4), 1)
    return {None: lambda model: model, "squared": with_squared, "huber": with_huber}[loss](built)


@pytest.mark.parametrize(("loss", "value", "slope"), [("squared", 2, 3), ("huber", 4, 5)])
def test_losses_and_their_derivatives_are_those_by_hand_and_of_autograd(loss, value, slope):
    table = torch.tensor(BY_HAND, dtype=torch.float64)
    scores, labels = table[:, :1].clone().requires_grad_(), table[:, 1]
    model = model_of(loss=loss)
    losses = model.loss(scores, labels)
    assert losses.tolist() == table[:, value].tolist()
    (by_autograd,) = torch.autograd.grad(losses.sum(), scores)
    stated = model.score_gradients(table[:, :1].mT, labels)
    assert stated[0].tolist() == by_autograd[:, 0].tolist() == table[:, slope].tolist()
    assert (model.curvature, model.curvature_sum) == (1, 1)


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("keys", [NOT_PRIVATE, CLIPPED], ids=["plain", "clipped"])
def test_every_backend_makes_the_same_model(loss, keys):
    weights = {}
    for backend in ("reference", "sequential", "stacked"):
        own = keys | {"training.backend": backend, "model.loss": loss, "training.rounds": 3}
        trained = Experiment.from_frame(rows_of(60), CONTENT, own).train()
        weights[backend] = torch.cat([each.flatten() for each in trained.state_dict.values()])
    assert torch.allclose(weights["reference"], weights["stacked"], atol=1e-5)
    assert torch.allclose(weights["reference"], weights["sequential"], atol=1e-5)


def test_a_label_is_scaled_by_its_public_range_alone():
    schema = parse_block(Schema, CONTENT, "schema")
    encoded = encode(rows_of(4, days=["0", "15", "60", "75,5"]), schema)
    assert encoded.labels.tolist() == [-1, -0.5, 1, 1] and encoded.labels.dtype == np.float32
    (outside,) = encoded.faults
    assert outside.note == "1 row were put on the border of the column days"
    table = table_of(rows_of(), schema, 0)
    assert table.label_range == (0, 60) and np.abs(table.labels).max() <= 1
    assert table.in_units(np.array([-1.0, 0, 0.5])).tolist() == [0, 30, 45]
    assert table.strata(np.array([-1.3, -1, -0.81, 0, 1, 9])).tolist() == [0, 0, 0, 5, 9, 9]


@pytest.mark.parametrize("loss", [None, "huber"])
def test_a_known_relation_is_found_without_noise(loss):
    own = NOT_PRIVATE | {"model.loss": loss}
    experiment = Experiment.from_frame(rows_of(), CONTENT, own)
    last = experiment.train().metrics.iloc[-1]
    assert np.isnan(last["accuracy"]) and last["r2"] > 0.999 and last["mae"] < 0.5
    # In days: the loss is of labels from -1 to 1.
    assert last["rmse"] == pytest.approx(30 * np.sqrt(2 * last["loss"]), rel=1e-4)


def test_another_network_learns_numbers_by_its_loss():
    own = NOT_PRIVATE | {"model.name": "dense", "model.loss": "squared", "training.rounds": 60}
    assert Experiment.from_frame(rows_of(), CONTENT, own).train().metrics["r2"].iloc[-1] > 0.9


def test_a_private_run_is_verified_and_tells_of_clients_worst_first():
    experiment = Experiment.from_frame(rows_of(2000), CONTENT, PRIVATE)
    summary, trained = experiment.summary(), experiment.train()
    assert summary["guarantee"] == "verified" and summary["epsilon_verified"] <= 1.0
    assert trained.metrics["r2"].iloc[-1] > 0.5 and "MAE" in repr(trained)
    by_client = experiment.by_client(trained.state_dict)
    assert list(by_client) == ["client", "records", "loss", "mae", "rmse", "r2"]
    assert by_client["mae"].is_monotonic_decreasing
    assert by_client["mae"].mean() == pytest.approx(trained.metrics["mae"].iloc[-1])
    assert experiment.confusion_matrix(trained.state_dict).to_numpy().sum() == 400


def test_noise_and_ledger_know_no_label():
    """The same records with classes for labels: the ledger is the same to the last digit."""
    of_classes = CONTENT | {"label": {"column": "days", "classes": ["0", "1"]}}
    numbers = Experiment.from_frame(rows_of(), CONTENT, PRIVATE)
    classes = Experiment.from_frame(rows_of(days=np.resize([0, 0, 1, 1], 300)), of_classes, PRIVATE)
    assert numbers.ledger().equals(classes.ledger())


def test_neighbours_of_an_audit_have_the_farthest_labels():
    shards = Experiment.from_frame(rows_of(), CONTENT, PRIVATE).shards()
    replaced = Neighbour(0, np.array([2, 5]), "replaced")
    before, changed = neighbouring(shards, replaced, np.random.default_rng(0))
    assert set(changed.labels[[2, 5]].tolist()) <= {-1.0, 1.0}
    assert (before.labels != changed.labels).sum() == 2


@pytest.mark.parametrize("client", [(), ("--client=hospital",)])
def test_a_described_table_trains_with_and_without_clients(tmp_path, monkeypatch, client):
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    rows_of().to_csv("stays.csv", index=False)
    told = CliRunner().invoke(main, ["data", "describe", "stays.csv", "--label=days", *client])
    assert told.exit_code == 0, told.output
    experiment = Experiment.from_config(load_config("conf/stays", {"training.rounds": 2}))
    assert experiment.summary()["guarantee"] == "conditional"
    assert set(experiment.train().metrics) >= {"mae", "rmse", "r2"}


def test_a_round_without_accuracy_is_judged_by_its_first_metric():
    own_metrics(["mae", "r2"])
    reached = {"accuracy": np.nan, "loss": 0.1, "mae": 2.0, "r2": 0.5}
    assert leading(reached) is MAE and leading({"accuracy": 0.5, "mae": 2.0}).name == "accuracy"
    assert of_last(reached) == {"loss": 0.1, "mae": 2.0, "r2": 0.5}


def test_metrics_by_hand():
    labels, scores = np.array([10.0, 20, 30]), np.array([[11.0], [20], [26]])
    assert MAE.value(labels, scores) == pytest.approx(5 / 3)
    assert RMSE.value(labels, scores) == pytest.approx(np.sqrt(17 / 3))
    assert R2.value(labels, scores) == pytest.approx(1 - 17 / 200)
    assert np.isnan(R2.value(labels[:1], scores[:1]))


REFUSED = {
    "a class of numbers": ({"model.name": "softmax"}, {}, "softmax.*the labels are numbers"),
    "an SVM": ({"model.name": "svm"}, {}, "svm.*use linear"),
    "dealt by class": ({"partition.scheme": "dirichlet"}, {}, "dirichlet.*labels that are classes"),
    "a loss of nobody": ({"model.loss": "hubert"}, {}, "hubert.*did you mean huber"),
    "a metric of classes": ({"training.metrics": ["brier"]}, {}, "brier.*fails on 60"),
    "a count of right ones": (
        {"partition.validation_fraction": 0.2, "partition.held_out_by": "devices"},
        {},
        "devices.*needs labels that are classes",
    ),
    "a label that is a word": ({}, {"days": "long"}, "'long' is no number to learn, row 0"),
    "a label that is missing": ({}, {"days": None}, "is no number to learn.*in all 300 rows"),
    "an infinite label": ({}, {"days": np.inf}, "'inf' is no number to learn"),
}


@pytest.mark.parametrize(("keys", "cells", "line"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_go_with_numbers_is_one_line(keys, cells, line):
    with pytest.raises(InputError, match=line):
        Experiment.from_frame(rows_of(**cells), CONTENT, PRIVATE | keys).check()


BAD_LABELS = {
    "both": ({"range": [0, 1], "classes": ["a", "b"]}, "one of classes and range"),
    "neither": ({}, "one of classes and range"),
    "the wrong way round": ({"range": [60, 0]}, "low < high"),
    "no number": ({"range": [0, "many"]}, "label.range"),
}


@pytest.mark.parametrize(("label", "line"), BAD_LABELS.values(), ids=BAD_LABELS)
def test_labels_of_a_schema_that_say_nothing_are_refused(label, line):
    with pytest.raises(InputError, match=line):
        parse_block(Schema, CONTENT | {"label": {"column": "days"} | label}, "schema")


def test_a_label_outside_the_range_is_refused_where_that_is_asked_for():
    strict = CONTENT | {"on_violation": "error"}
    with pytest.raises(
        InputError, match=r"days: '75' is outside the range, row 0, in all 300 rows"
    ):
        Experiment.from_frame(rows_of(days=75), strict, PRIVATE)


def test_models_of_numbers_are_not_for_classes():
    for keys, line in (
        ({"model.name": "linear"}, "linear.*10 classes; use softmax"),
        (
            {"model.name": "dense", "model.loss": "huber"},
            "dense.*10 classes; use softmax, or model.loss: null",
        ),
    ):
        iid = {"partition.scheme": "iid"}
        with pytest.raises(InputError, match=line):
            Experiment.from_config(load_config(keys | iid)).check()


@pytest.fixture
def described(project):
    """A project in which a table was described."""
    rows_of(ward=np.resize(["a", "b", "c"], 300)).to_csv(project / "stays.csv", index=False)
    told = CliRunner().invoke(
        main, ["data", "describe", "stays.csv", "--label=days", "--client=hospital"]
    )
    assert told.exit_code == 0, told.output
    return project


def test_two_commands_lead_from_a_file_to_a_run_and_to_values(described, kedro_run, monkeypatch):
    import mlflow

    folder = described / "conf" / "stays"
    schema = yaml.safe_load((folder / "schema.yml").read_text())
    assert schema["label"] == {"column": "days", "range": [0.0, 60.0], "confirmed": False}
    assert (folder / "labels.png").is_file()
    text = (folder / "schema.yml").read_text()
    (folder / "schema.yml").write_text(text.replace(", confirmed: false", ""))
    said = " ".join(kedro_run("--env=stays", code=0).output.split())
    assert (
        "worst first" in said and "MAE" in said and "accuracy" not in said.partition("by client")[2]
    )
    reports = described / "data" / "08_reporting" / "single"
    summary = json.loads((reports / "run_summary.json").read_text())
    assert summary["privacy"] == "verified" and "accuracy" not in summary and summary["r2"] > 0
    model = described / "data" / "06_models" / "single" / "mlflow_model"
    served = mlflow.pyfunc.load_model(str(model))
    raw = rows_of(ward=np.resize(["a", "b", "c"], 300))
    answers = served.predict(raw[["age", "grade", "ward"]])
    assert list(answers) == ["label"] and answers["label"].dtype == np.float64
    found = np.abs(answers["label"] - raw["days"]).mean()
    assert found == pytest.approx(summary["mae"], rel=0.5)  # days, of rows it has seen, too
    monkeypatch.chdir(described)
    told = CliRunner().invoke(main, ["predict", "single", "stays.csv"])
    assert told.output.splitlines()[0] == "label" and len(told.output.split()) == 301


STUDY = """
title: Days
parameters:
  training.rounds: 2
grid:
  algorithm: [hfl, m2fdp]
  seed: [0, 1]
"""
SEARCH = """
versions:
  a:
    search: {seeds: [7], validation_fraction: 0.1, spaces: {one: {grids: [{training.rounds: [1]}]}}}
arms:
  one: {label: one, space: one}
"""


@pytest.mark.full
def test_a_study_compares_errors_and_chooses_nothing_by_accuracy(described):
    studies, keys = described / "conf" / "base" / "studies", described / "conf" / "stays"
    own = yaml.safe_load((keys / "parameters.yml").read_text())
    own["training"] |= {"rounds": 2, "metrics": []}  # those that numbers have by default
    content = yaml.safe_load(STUDY) | {"parameters": own}
    (studies / "days.yml").write_text(yaml.safe_dump(content))
    told = CliRunner().invoke(study, ["days", "--workers=1"])
    assert told.exit_code == 0, told.output
    table = pd.read_csv(described / "data" / "08_reporting" / "days" / "comparison.csv")
    assert table["accuracy_mean"].isna().all() and (table["mae_mean"] > 0).all()
    content["grid"] = {"seed": [0]}
    (studies / "days.yml").write_text(yaml.safe_dump(content | yaml.safe_load(SEARCH)))
    told = CliRunner().invoke(study, ["days", "--workers=1"])
    assert told.exit_code == 2 and "labels that are numbers have none of" in told.output


@pytest.mark.parametrize(("confirmed", "guarantee"), [(False, "conditional"), (True, "verified")])
def test_a_range_that_is_given_in_python_needs_confirming(confirmed, guarantee):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (300, 4, 4, 1), dtype=np.uint8)
    labels = rng.uniform(-1, 1, 300).astype(np.float32)
    dataset = Dataset("own", images, labels, 250, 1, label_range=(0.0, 60.0))
    keys = {"model.name": "linear", "partition.scheme": "iid", "topology.fanouts": [2, 2]}
    keys |= {"dataset.confirmed": confirmed, "training.batch_size": None, "training.rounds": 2}
    experiment = Experiment.from_config(load_config(keys), dataset)
    assert experiment.summary()["guarantee"] == guarantee
