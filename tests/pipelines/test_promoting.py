"""`kedro promote`: which run's model it registers, with what, and what it refuses."""

import shutil

import mlflow
import pytest
from click.testing import CliRunner
from tests.finished import RUNS

from m2fdp.cli import cli
from m2fdp.pipelines import tracking


@pytest.fixture
def client(project, finished_run):
    """Of a store with one run, which has trained, and whose folder is the project's."""
    finished = finished_run(*RUNS["training"])
    shutil.copy(finished.project / "mlruns/mlflow.db", project / "mlruns")
    return mlflow.MlflowClient(tracking.tracking_uri(project))


def run_in(client):
    (run, *_) = client.search_runs(["1"])
    return run


def promote(*arguments, code=0):
    result = CliRunner().invoke(cli, ["promote", *arguments])
    assert result.exit_code == code, result.output
    assert code == 0 or result.output.count("\n") == 1
    return result.output


def test_the_latest_run_is_registered_once_with_what_it_promises(client):
    run = run_in(client)
    said = promote("digits")
    assert said == f"models:/digits@champion is version 1, of run {run.info.run_id}.\n"
    version = client.get_model_version_by_alias("digits", "champion")
    (model,) = run.outputs.model_outputs
    assert version.run_id == run.info.run_id and model.model_id in version.source
    epsilon = float(version.tags.pop("epsilon_verified"))
    assert epsilon == run.data.metrics["epsilon_verified"]
    assert version.tags == {
        "privacy": "verified",
        "epsilon_nominal": "4.0",
        "delta": "1e-05",
        "adjacency": "add_remove",
        "unit": "record",
        "dataset": "digits",
    }
    promote("digits", "--alias=challenger", f"--run={run.info.run_id}", "--reason=beside it")
    (version,) = client.search_model_versions("name = 'digits'")
    named = client.get_model_version_by_alias("digits", "challenger")
    assert named.version == version.version
    assert named.tags["reason"] == "beside it"


def test_a_run_that_is_not_verified_needs_a_reason_which_is_kept(client):
    later = client.create_run("1", tags={"cell": "single"})
    open_model = client.create_logged_model("1", source_run_id=later.info.run_id)
    output = mlflow.entities.LoggedModelOutput(open_model.model_id, 1)
    client.log_outputs(later.info.run_id, [output])
    client.set_terminated(later.info.run_id)
    line = promote("digits", code=2)
    assert line.startswith(f"Error: --run = '{later.info.run_id}': its promise is none, not veri")
    assert client.search_model_versions("name = 'digits'") == []
    promote("digits", "--reason=a reference without privacy")
    version = client.get_model_version_by_alias("digits", "champion")
    assert version.run_id == later.info.run_id
    assert version.tags == {"privacy": "none", "reason": "a reference without privacy"}


def test_what_can_not_be_promoted_is_one_line(client):
    for no_run in ("0" * 32, "", "../x"):
        assert "has no such run" in promote("digits", f"--run={no_run}", code=2)
    running = client.create_run("1", tags={"cell": "single"}).info.run_id
    assert "is running; name a finished run" in promote("digits", f"--run={running}", code=2)
    client.set_terminated(running)
    assert "has left no model" in promote("digits", f"--run={running}", code=2)
    assert "promote = 'digits --alias=v9': " in promote("digits", "--alias=v9", code=2)
    assert "promote = 'a/b --alias=champion': " in promote("a/b", code=2)
    assert client.search_registered_models() == []


def test_without_a_run_there_is_nothing_to_promote(project):
    line = promote("digits", code=2)
    assert line.startswith("Error: --run = '(none)': no finished run of the cell single has a")
