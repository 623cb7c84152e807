"""What MLflow's page of a run says, through real Kedro sessions."""

import json
import re
import socket

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from tests.builders import digits, experiment_of
from tests.finished import RUNS, SMALL, manifest_of, only_run, report

from m2fdp.core.data.dataset import features
from m2fdp.pipelines.evaluation import summarise
from m2fdp.pipelines.logged_models import publish

NOTE = "mlflow.note.content"


@pytest.fixture
def finished(finished_run, monkeypatch):
    """A small run, in whose store MLflow looks."""
    finished = finished_run(*RUNS["training"])
    mlflow.set_tracking_uri(finished.store)
    return finished


def test_the_description_of_a_run_has_its_numbers_and_links_its_files(finished):
    run, reporting = finished.run, finished.project / "data/08_reporting/single"
    note = run.data.tags[NOTE]
    card = (reporting / "privacy_card.md").read_text()
    summary = report(finished.project, "run_summary.json")
    for text in (note, card):
        assert f"{summary['accuracy']:.4f}" in text
        assert "4.00 (verified)" in text
        assert run.data.tags["split_sha256"] in text
        assert "kedro run --params=" in text and "training.rounds=3" in text
    # Links and pictures of artifacts that are there, of this run.
    pictures = re.findall(r"get-artifact\?path=([\w.]+)&run_uuid=(\w+)\)", note)
    page = (
        rf"\(#/experiments/{run.info.experiment_id}/runs/(\w+)/artifacts/([\w.]+)"
        r"\?workflowType=machine_learning\)"
    )
    linked = [(path, run_id) for run_id, path in re.findall(page, note)]
    assert pictures == [("accuracy_curve.png", run.info.run_id)] and len(linked) == 6
    assert {run_id for _, run_id in pictures + linked} == {run.info.run_id}
    assert {path for path, _ in pictures + linked} <= finished.artifacts
    for name in re.findall(r"\]\(([\w.]+)\)", card):
        assert (reporting / name).is_file()


def test_the_data_set_of_a_run_is_an_input(finished):
    (logged,) = finished.run.inputs.dataset_inputs
    assert logged.dataset.name == "digits"
    assert finished.run.data.tags["split_sha256"].startswith(logged.dataset.digest)
    assert [(tag.key, tag.value) for tag in logged.tags] == [("mlflow.data.context", "training")]
    manifest = manifest_of(finished.project)
    profile = json.loads(logged.dataset.profile)
    assert profile["num_rows"] == (manifest["split"] == "train").sum() == 1438
    assert (profile["devices"], profile["classes"], profile["test_records"]) == (12, 10, 359)


def test_the_model_of_a_run_is_published_once_and_can_be_served_and_registered(project, kedro_run):
    kedro_run("--params", SMALL, code=0)
    run = only_run()
    (output,) = run.outputs.model_outputs
    about = mlflow.get_logged_model(output.model_id)
    assert about.status == "READY" and about.source_run_id == run.info.run_id
    assert float(about.params["epsilon_verified"]) == run.data.metrics["epsilon_verified"]
    # Epsilon covers the model, and not its accuracy on the cloud's records.
    assert "accuracy" not in about.params
    (used,) = run.inputs.dataset_inputs
    told = {metric.key: metric.value for metric in about.metrics}
    assert told == {
        name: run.data.metrics[name] for name in ("accuracy", "epsilon_verified", "epsilon_nominal")
    }
    measured_on = {(metric.dataset_name, metric.dataset_digest) for metric in about.metrics}
    assert measured_on == {("digits", used.dataset.digest)}
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "accuracy")
    assert [metric.step for metric in history] == [1, 2, 3]  # none a second time
    model = mlflow.pyfunc.load_model(f"runs:/{run.info.run_id}/model")
    metadata = model.metadata.metadata
    assert metadata["epsilon_verified"] == run.data.metrics["epsilon_verified"]
    assert (metadata["delta"], metadata["privacy"]) == (1e-5, "verified")
    dataset = digits()
    test = slice(dataset.n_train, None)
    scores = model.predict(features(dataset.images[test]))
    accuracy = (scores.argmax(1) == dataset.labels[test]).mean()
    assert accuracy == pytest.approx(run.data.metrics["accuracy"])
    example = model.input_example
    assert np.unique(example).tolist() == [0.5]  # nobody's record
    assert model.predict(example).shape == (1, 10)
    registered = mlflow.register_model(f"models:/{output.model_id}", "digits")
    loaded = mlflow.pyfunc.load_model(f"models:/digits/{registered.version}")
    np.testing.assert_array_equal(loaded.predict(example), model.predict(example))

    folder = project / "data" / "06_models" / "single" / "mlflow_model"
    publish(mlflow.MlflowClient(), run.info.run_id, folder)
    assert len(mlflow.search_logged_models(output_format="list")) == 1
    state = torch.load(project / "data/06_models/single/model.pt", weights_only=True)
    served = torch.load(folder / "data" / "model.pt", weights_only=True)
    assert all(torch.equal(state[name], served[name]) for name in state)


def test_a_page_names_no_machine(finished):
    project, run = finished.project, finished.run
    (output,) = run.outputs.model_outputs
    about = mlflow.get_logged_model(output.model_id)
    (logged,) = run.inputs.dataset_inputs
    folder = project / "data" / "06_models" / "single" / "mlflow_model"
    files = [path.read_text() for path in folder.iterdir() if path.is_file()]
    texts = [*run.data.tags.values(), *about.params.values(), *about.tags.values(), *files]
    for text in [*texts, logged.dataset.source]:
        assert str(project) not in text and "/home" not in text
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
        assert "object at 0x" not in text


def test_metrics_begin_with_the_accuracy_and_tell_of_observers_only_what_else_they_learn(finished):
    (first, *others) = finished.run.data.metrics
    assert first == "accuracy" and {"epsilon_verified", "wall_s"} <= set(others)
    assert not [name for name in others if name.startswith("epsilon_observer/")]


def test_a_run_that_only_plans_its_privacy_has_a_card_of_it(finished_run):
    note = finished_run(*RUNS["privacy"]).run.data.tags[NOTE]
    assert "trains none" in note and "4.00 (verified)" in note
    assert "kedro run --pipelines=privacy --params=" in note
    assert "accuracy_curve.png" not in note and "privacy_ledger.png" in note


@pytest.mark.parametrize("held_out_by", ["cloud", "devices"])
def test_the_summary_tells_a_model_that_answers_one_class_of_the_clouds_records_alone(held_out_by):
    validation = {"validation_fraction": 0.2, "held_out_by": held_out_by}
    changes = {"partition": validation, "training.evaluate_on": "validation"}
    last = dict.fromkeys(("round", "accuracy", "loss", "energy_j", "delay_s"), 1.0)
    given = pd.DataFrame([last]), {"guarantee": "none"}
    experiment = experiment_of(changes)
    answers = {
        name: summarise(*given, pd.DataFrame(counts), experiment).get("answers")
        for name, counts in (("one", [[9, 0], [3, 0]]), ("two", [[9, 0], [2, 1]]))
    }
    said = "one class only, 0: its accuracy is the share of that class, 0.750"
    assert answers == {"one": said if held_out_by == "cloud" else None, "two": None}
