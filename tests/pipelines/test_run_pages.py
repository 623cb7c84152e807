"""What MLflow's page of a run says, through real Kedro sessions."""

import json
import re
import socket
import subprocess

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from kedro.pipeline import Node, Pipeline
from tests.builders import digits

from m2fdp.data.dataset import features
from m2fdp.errors import InputError
from m2fdp.pipelines import tracking
from m2fdp.pipelines.tracking import END_TAG

SMALL = "topology.fanouts=4|3,training.rounds=3,training.local_steps=2,training.batch_size=null"
NOTE = "mlflow.note.content"


def only_run():
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    return run


@pytest.fixture
def finished(project, kedro_run):
    """A small run."""
    result = kedro_run("--params", SMALL)
    assert result.exit_code == 0, result.output
    return only_run()


def test_a_page_explains_its_run(project, finished):
    run, reporting = finished, project / "data" / "08_reporting" / "single"
    _check_description(run, reporting)
    _check_dataset(run, project)
    _check_model(run)
    _check_names_no_machine(project, run)
    # No bars of one value: of the observers only those who learn something else.
    assert not [name for name in run.data.metrics if name.startswith("epsilon_observer/")]


def _check_description(run, reporting):
    note = run.data.tags[NOTE]
    card = (reporting / "privacy_card.md").read_text()
    summary = json.loads((reporting / "run_summary.json").read_text())
    for text in (note, card, (reporting / "privacy_card.html").read_text()):
        assert f"{summary['accuracy']:.4f}" in text
        assert "4.00 (verified)" in text
        assert run.data.tags["split_sha256"] in text
        assert "kedro run --params=" in text and "training.rounds=3" in text
    # Links and pictures of artifacts that are there, of this run.
    artifacts = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)}
    shown = re.findall(r"get-artifact\?path=([\w.]+)&run_uuid=(\w+)\)", note)
    page = (
        rf"\(#/experiments/{run.info.experiment_id}/runs/(\w+)/artifacts/([\w.]+)"
        r"\?workflowType=machine_learning\)"
    )
    linked = [(path, run_id) for run_id, path in re.findall(page, note)]
    assert shown == [("accuracy_curve.png", run.info.run_id)] and len(linked) == 6
    assert {run_id for _, run_id in shown + linked} == {run.info.run_id}
    assert {path for path, _ in shown + linked} <= artifacts
    for name in re.findall(r"\]\(([\w.]+)\)", card):
        assert (reporting / name).is_file()


def _check_dataset(run, project):
    (given,) = run.inputs.dataset_inputs
    assert given.dataset.name == "digits"
    assert run.data.tags["split_sha256"].startswith(given.dataset.digest)
    assert [(tag.key, tag.value) for tag in given.tags] == [("mlflow.data.context", "training")]
    manifest = pd.read_csv(project / "data/05_model_input/single/manifest.csv")
    profile = json.loads(given.dataset.profile)
    assert profile["num_rows"] == (manifest["split"] == "train").sum() == 1438
    assert (profile["devices"], profile["classes"], profile["test_records"]) == (12, 10, 359)


def _check_model(run):
    (output,) = run.outputs.model_outputs
    about = mlflow.get_logged_model(output.model_id)
    assert about.status == "READY" and about.source_run_id == run.info.run_id
    assert float(about.params["epsilon_verified"]) == run.data.metrics["epsilon_verified"]
    # Epsilon covers the model, and not its accuracy on the cloud's records.
    assert "accuracy" not in about.params
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
    again = mlflow.pyfunc.load_model(f"models:/digits/{registered.version}")
    np.testing.assert_array_equal(again.predict(example), model.predict(example))


def _check_names_no_machine(project, run):
    (output,) = run.outputs.model_outputs
    about = mlflow.get_logged_model(output.model_id)
    (given,) = run.inputs.dataset_inputs
    folder = project / "data" / "06_models" / "single" / "mlflow_model"
    files = [path.read_text() for path in folder.iterdir() if path.is_file()]
    texts = [*run.data.tags.values(), *about.params.values(), *about.tags.values(), *files]
    for text in [*texts, given.dataset.source]:
        assert str(project) not in text and "/home" not in text
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
        assert "object at 0x" not in text


def test_a_run_that_only_plans_its_privacy_has_a_card_of_it(project, kedro_run):
    result = kedro_run("--pipelines=privacy", "--params", SMALL)
    assert result.exit_code == 0, result.output
    note = only_run().data.tags[NOTE]
    assert "trains none" in note and "4.00 (verified)" in note
    assert "kedro run --pipelines=privacy --params=" in note
    assert "accuracy_curve.png" not in note and "privacy_ledger.png" in note


@pytest.fixture
def failing(monkeypatch):
    """A function that makes the given exception the end of the project's only pipeline."""

    def use(error: BaseException) -> None:
        def end(seed):
            raise error

        registered = {"__default__": Pipeline([Node(end, "params:seed", "audit", name="end")])}
        monkeypatch.setattr("m2fdp.pipeline_registry.register_pipelines", lambda: registered)

    return use


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (InputError("seed", 3, "choose another"), "seed = 3: choose another"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
    ],
)
def test_a_failed_run_says_why(project, kedro_run, failing, error, why):
    failing(error)
    assert kedro_run().exit_code != 0
    run = only_run()
    assert run.info.status == "FAILED"
    assert run.data.tags[END_TAG] == why and why in run.data.tags[NOTE]


def test_a_run_that_is_stopped_says_by_what(project, kedro_run, failing):
    failing(KeyboardInterrupt("SIGTERM"))
    kedro_run()
    run = only_run()
    assert run.info.status == "KILLED"
    assert run.data.tags[END_TAG] == "stopped by SIGTERM"


def test_a_reason_names_no_folder_of_the_project(project, kedro_run, failing):
    failing(OSError(28, "No space left on device", str(project / "data" / "x.csv")))
    kedro_run()
    assert only_run().data.tags[END_TAG].startswith("data/x.csv: No space left on device")


def test_a_process_that_is_gone_is_told_on_the_page_of_its_run(project):
    mlflow.set_tracking_uri(tracking.tracking_uri(project))
    gone = subprocess.Popen(["true"])
    gone.wait()
    host, _, _ = tracking.process_tag().split(":")
    run = mlflow.MlflowClient().create_run("0", tags={"process": f"{host}:{gone.pid}:1.0"})
    assert tracking.close_stale_runs() == [run.info.run_id]
    ended = mlflow.get_run(run.info.run_id)
    assert ended.info.status == "KILLED" and "was killed" in ended.data.tags[END_TAG]
    tracking.forget_end(ended)
    assert END_TAG not in mlflow.get_run(run.info.run_id).data.tags


def test_a_model_is_published_once(project, finished):
    from m2fdp.pipelines.logged_models import publish

    folder = project / "data" / "06_models" / "single" / "mlflow_model"
    publish(mlflow.MlflowClient(), finished.info.run_id, folder)
    found = mlflow.search_logged_models(output_format="list")
    assert len(found) == 1
    state = torch.load(project / "data/06_models/single/model.pt", weights_only=True)
    served = torch.load(folder / "data" / "model.pt", weights_only=True)
    assert all(torch.equal(state[name], served[name]) for name in state)
