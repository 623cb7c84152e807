"""A model of tables takes raw rows: in Python, on the command line, and from a scoring server."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.finished import REPOSITORY
from tests.tables.test_table import CONTENT, rows_of

from m2fdp import Experiment
from m2fdp.pipelines.logged_models import ServableModelDataset
from m2fdp.pipelines.training import package_model
from m2fdp.program import main

RAW = ["age", "chol", "sex"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with the model of a run on a table, and what the run's own model says of rows."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").touch()
    keys = {"training.rounds": 3, "dataset.scale": "unit_norm"}
    experiment = Experiment.from_frame(rows_of(200), CONTENT, keys)
    trained = experiment.train()
    packed = package_model(experiment, trained.state_dict, trained.metrics, experiment.summary())
    at = folder / "data" / "06_models" / "single" / "mlflow_model"
    ServableModelDataset(path=str(at)).save(packed)
    return folder, experiment, trained


def test_raw_rows_get_what_the_run_says_of_them(project, monkeypatch):
    import mlflow

    folder, experiment, trained = project
    served = mlflow.pyfunc.load_model(str(folder / "data/06_models/single/mlflow_model"))
    answers = served.predict(rows_of(200)[RAW])
    assert list(answers) == ["label", "healthy", "ill"]
    assert np.allclose(answers[["healthy", "ill"]].sum(axis=1), 1)
    # The same rows as test records of the run, in the order of its data set.
    dataset, found = experiment.dataset, experiment.evaluate(trained.state_dict).predictions
    order = _places_of(experiment)
    assert answers["label"].to_numpy()[order].tolist() == [
        dataset.schema.classes[label] for label in found.tolist()
    ]


def _places_of(experiment):
    """The row of the table that each test record was."""
    from m2fdp.tables.encoding import encode

    encoded = encode(rows_of(200), experiment.dataset.schema).inputs[:, 0, :, 0]
    tested = experiment.dataset.images[experiment.held_out][:, 0, :, 0]
    return [int(np.flatnonzero((encoded == row).all(axis=1))[0]) for row in tested]


def test_the_example_and_the_columns_are_the_schemas(project):
    import mlflow

    model = mlflow.models.Model.load(str(project[0] / "data/06_models/single/mlflow_model"))
    assert model.signature.inputs.input_names() == RAW
    assert [column.required for column in model.signature.inputs] == [True, False, True]
    example = json.loads(
        (project[0] / "data/06_models/single/mlflow_model/input_example.json").read_text()
    )
    assert example == {"columns": RAW, "data": [[60.0, 350.0, "Male"]]}


def test_the_command_labels_a_file(project, monkeypatch):
    folder, *_ = project
    monkeypatch.chdir(folder)
    rows_of(5)[RAW].to_csv("new.csv", index=False)
    told = CliRunner().invoke(main, ["predict", "single", "new.csv"])
    assert told.exit_code == 0, told.output
    assert told.output.splitlines()[0] == "label,healthy,ill" and len(told.output.split()) == 6
    again = CliRunner().invoke(main, ["predict", "single", "new.csv", "-o", "answers.csv"])
    assert again.output == "wrote answers.csv: 5 rows\n"
    assert (folder / "answers.csv").read_text() == told.output


BAD_ROWS = {
    "a column that lacks": (lambda f: f.drop(columns="sex"), "lacks the column sex"),
    "a text for a number": (lambda f: f.assign(age="x"), "age: 'x' is no number"),
    "an empty cell": (lambda f: f.assign(age=None), "age: is empty"),
}


@pytest.mark.parametrize(("change", "line"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_get_one_line(project, monkeypatch, change, line):
    monkeypatch.chdir(project[0])
    change(rows_of(5)[RAW]).to_csv("bad.csv", index=False)
    told = CliRunner().invoke(main, ["predict", "single", "bad.csv"])
    assert told.exit_code == 2 and line in told.output and "Traceback" not in told.output


def test_a_scoring_server_answers_with_classes(project):
    folder = project[0] / "data/06_models/single/mlflow_model"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    programs = Path(sys.executable).parent
    paths = {
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
    }
    options = ["--env-manager=local", f"--port={port}", f"--model-uri={folder}"]
    server = subprocess.Popen(
        [str(programs / "mlflow"), "models", "serve", *options],
        env={**os.environ, **paths, "MLFLOW_DISABLE_TELEMETRY": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        rows = {"dataframe_records": rows_of(2)[RAW].to_dict("records")}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations",
            json.dumps(rows, default=int).encode(),
            {"Content-Type": "application/json"},
        )
        answer = _asked(request, server)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert [set(row) for row in answer["predictions"]] == [{"label", "healthy", "ill"}] * 2


def _asked(request, server):
    for _ in range(240):
        assert server.poll() is None
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except (ConnectionError, urllib.error.URLError):
            time.sleep(0.25)
    raise AssertionError("the server does not answer")
