"""What `kedro ui` prints and starts."""

import json
import os
import socket
import time

import click
import mlflow
import pytest
from click.testing import CliRunner
from mlflow.environment_variables import MLFLOW_SERVER_ENABLE_JOB_EXECUTION
from tests.finished import REPOSITORY

from m2fdp.cli import cli
from m2fdp.pipelines import pages as ui
from m2fdp.pipelines import tracking
from m2fdp.pipelines.pages import tell_once_served

VIEW = "runs?viewStateShareKey=kedro-run&compareRunsMode=TABLE&workflowType=machine_learning"


@pytest.fixture
def taken():
    """A port that somebody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def served(monkeypatch):
    """The command line and the environment of each server that would be started."""
    servers = []
    monkeypatch.setattr(os, "execve", lambda program, *server: servers.append(server))
    monkeypatch.setattr(ui, "tell_once_served", lambda port, lines: click.echo("\n".join(lines)))
    return servers


def kedro_ui():
    result = CliRunner().invoke(cli, ["ui"])
    assert result.exit_code == 0, result.output
    return result.output


def test_it_prints_a_view_of_the_runs_that_belong_to_no_study(project, served):
    said = kedro_ui()
    experiment = mlflow.get_experiment_by_name("m2fdp")
    assert f"#/experiments/{experiment.experiment_id}/{VIEW}" in said
    view = json.loads(experiment.tags["mlflow.sharedViewState.kedro-run"])
    metrics = ("accuracy", "epsilon_verified", "epsilon_nominal", "energy_j", "delay_s")
    assert view["selectedColumns"][:5] == [f"metrics.`{name}`" for name in metrics]
    client = mlflow.MlflowClient()
    client.create_run(experiment.experiment_id, tags={"study": "fig7"})
    alone = client.create_run(experiment.experiment_id)
    order = f"{view['orderByKey']} DESC"
    shown = client.search_runs([experiment.experiment_id], view["searchFilter"], order_by=[order])
    assert [run.info.run_id for run in shown] == [alone.info.run_id]


def test_where_all_runs_belong_to_studies_the_latest_study_is_opened(project, served):
    """As after the demo: the view of other runs would be empty."""
    kedro_ui()
    client, experiment = mlflow.MlflowClient(), mlflow.get_experiment_by_name("m2fdp")
    for start, name in enumerate(("fig7", "quickstart"), start=1):
        tags = {"study": name, "role": "study"}
        client.create_run(experiment.experiment_id, start_time=start, tags=tags)
    (line,) = [line for line in kedro_ui().splitlines() if "viewStateShareKey" in line]
    assert line.startswith("The study quickstart: ") and "viewStateShareKey=quickstart" in line
    client.create_run(experiment.experiment_id)
    both = [line for line in kedro_ui().splitlines() if "viewStateShareKey" in line]
    assert [line.partition(":")[0] for line in both] == ["The runs", "The study quickstart"]


def test_the_server_has_one_worker_no_jobs_and_the_runs(project, served):
    kedro_ui()
    ((command, environment),) = served
    # More workers would import for longer than MLflow waits where other processes compute.
    assert " -m mlflow ui --workers 1 " in " ".join(command)
    assert command[-2:] == ["--backend-store-uri", tracking.tracking_uri(project)]
    assert environment[MLFLOW_SERVER_ENABLE_JOB_EXECUTION.name] == "false"


def test_it_says_so_where_its_port_is_taken_and_takes_another(project, served, taken, monkeypatch):
    monkeypatch.setattr("m2fdp.pipelines.pages._PORT", taken)
    first, address = kedro_ui().splitlines()
    ((command, _),) = served
    port = command[command.index("--port") + 1]
    assert first.startswith(f"Port {taken} is taken") and first.endswith(f"this one takes {port}.")
    assert f"http://127.0.0.1:{port}/#/" in address
    assert int(port) > taken


def test_the_address_is_told_when_somebody_listens_there(capfd):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        teller = tell_once_served(server.getsockname()[1], ["The runs: here"])
        time.sleep(1)
        assert teller.poll() is None and capfd.readouterr().out == ""
        server.listen()
        assert teller.wait(timeout=60) == 0
    assert capfd.readouterr().out == "The runs: here\n"


def test_a_server_that_keeps_the_runs_shows_them_itself(project, served, monkeypatch):
    monkeypatch.setattr("m2fdp.pipelines.pages.tracking_uri", lambda project: "http://tracking/")
    assert kedro_ui().startswith("The runs: http://tracking/#/experiments/")
    assert served == []


def test_make_opens_the_same_pages():
    assert "kedro ui\n" in (REPOSITORY / "Makefile").read_text().partition("\nui:")[2]
