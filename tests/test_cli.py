import errno
import os
import sqlite3

import mlflow
import pytest
from click.testing import CliRunner
from kedro.framework.cli.project import run as kedros_own_run
from kedro.io import DatasetError
from mlflow.exceptions import MlflowException

from m2fdp.cli import cli, run
from m2fdp.pipelines.selection import all_pipelines, pipeline_names
from m2fdp.pipelines.tracking import tracking_uri
from m2fdp.studies.order import Order


def test_run_has_the_options_of_kedros_own_run():
    assert [option.name for option in run.params] == [
        option.name for option in kedros_own_run.params
    ]
    assert run.help == kedros_own_run.help


@pytest.mark.parametrize("command", ["run", "study"])
def test_help_spells_params_as_they_are_taken(project, kedro_run, command):
    """Kedro's own text has them with colons, too, which it refuses."""
    told = " ".join(CliRunner().invoke(cli, [command, "--help"]).output.split())
    assert "seed=3,topology.fanouts=[10,5]" in told and "colon" not in told
    result = kedro_run("--params=privacy.epsilon:2", code=2)
    assert result.output == (
        "Error: --params = 'privacy.epsilon:2': give KEY=VALUE, several separated by commas\n"
    )


PARAMS_TWICE = ["--params=seed=1,training.rounds=7,threads=2", "--params", "training.rounds=8"]
MERGED = {"seed": 1, "training": {"rounds": 8}, "threads": 2}


@pytest.fixture
def called(project, monkeypatch):
    """The options with which Kedro's own `run` is called, instead of running."""
    options = {}
    monkeypatch.setattr("m2fdp.cli.kedro_run.callback", lambda **given: options.update(given))
    return options


def test_params_given_twice_are_merged_and_the_later_wins(called, study_call):
    assert CliRunner().invoke(run, PARAMS_TWICE).exit_code == 0
    assert called["params"] == MERGED
    assert CliRunner().invoke(cli, ["study", "fig7", *PARAMS_TWICE]).exit_code == 0
    assert study_call["order"].params == MERGED


@pytest.mark.parametrize(
    ("options", "expected"), [([], {"seed": 3, "training": {"rounds": 2}}), (PARAMS_TWICE, MERGED)]
)
def test_params_may_come_from_a_file_that_the_command_line_overrides(
    project, called, options, expected
):
    file = project / "run.yml"
    file.write_text("run: {params: {seed: 3, training: {rounds: 2}}}")
    result = CliRunner().invoke(run, [f"--config={file}", *options])
    assert result.exit_code == 0, result.output
    assert called["params"] == expected


def failing_disk(project, number):
    """As files.replacing would tell it, wrapped by Kedro."""
    try:
        raise OSError(number, os.strerror(number), str(project / "model.pt"))
    except OSError as error:
        raise DatasetError("Failed while saving data") from error


def failing_store():
    try:
        raise sqlite3.OperationalError("database or disk is full")
    except sqlite3.Error as error:
        raise MlflowException("(sqlite3.OperationalError) …") from error


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "No space left on device"),
        (errno.EROFS, "Read-only file system"),
        (errno.EACCES, "Permission denied"),
        (errno.EFBIG, "File too large"),
    ],
)
def test_a_disk_that_fails_is_one_line_with_its_file(project, monkeypatch, number, reason):
    monkeypatch.setattr(
        "m2fdp.cli.kedro_run.callback", lambda **options: failing_disk(project, number)
    )
    result = CliRunner().invoke(run, [])
    assert result.exit_code == 1
    assert result.output == (
        f"Error: {project}/model.pt: {reason}. Files that were there before are as they were.\n"
    )


def test_a_store_that_fails_in_a_study_is_one_line_with_its_address(project, monkeypatch):
    monkeypatch.setattr(
        "m2fdp.studies.command.study", lambda *arguments, **options: failing_store()
    )
    result = CliRunner().invoke(cli, ["study", "fig7"])
    assert result.exit_code == 1
    assert result.output == (
        f"Error: MLflow at {mlflow.get_tracking_uri()} fails: database or disk is full. "
        "--resume runs what is missing.\n"
    )


@pytest.fixture
def study_call(monkeypatch):
    """The arguments with which `kedro study` calls the studies, instead of running one."""
    call = {}
    monkeypatch.setattr("m2fdp.studies.order.check_order", lambda *order: None)

    def record(project, order, **options):
        call.update(options, order=order)

    monkeypatch.setattr("m2fdp.studies.command.study", record)
    return call


@pytest.mark.parametrize(
    ("words", "order", "chosen", "identity", "command"),
    [
        (
            "fig7 --resume --workers=3 --ray-address=auto --env=mnist --scale=smoke "
            "--only=arm=p1_1 --only privacy.epsilon=2 --params=seed=1,a.b=2",
            Order("fig7", "smoke", "mnist", {"seed": 1, "a": {"b": 2}}),
            (("arm=p1_1", "privacy.epsilon=2"), True, 3, "auto"),
            "fig7-mnist-smoke",
            "kedro study fig7 --scale=smoke --env=mnist --params=seed=1,a.b=2",
        ),
        (
            "quickstart",
            Order("quickstart"),
            ((), False, None, None),
            "quickstart",
            "kedro study quickstart",
        ),
    ],
)
def test_study_hands_its_options_on_and_leaves_the_others_to_the_studies(
    project, study_call, words, order, chosen, identity, command
):
    assert CliRunner().invoke(cli, ["study", *words.split()]).exit_code == 0
    names = ("order", "only", "resume", "workers", "ray_address")
    assert study_call == dict(zip(names, (order, *chosen), strict=True))
    assert (order.identity, order.command) == (identity, command)


def test_study_hands_on_what_a_sweep_goes_over(project, study_call):
    arguments = ["study", "sweep", "--over=privacy.epsilon=1|2", "--over=seed=1", "--seeds=4"]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    over = ("privacy.epsilon=1|2", "seed=1")
    assert study_call["order"] == Order("sweep", None, None, {}, over, 4)


def test_study_report_runs_no_study(project, study_call, monkeypatch):
    reports = []
    monkeypatch.setattr("m2fdp.studies.command.report", lambda project: reports.append("made"))
    assert CliRunner().invoke(cli, ["study", "report"]).exit_code == 0
    assert (reports, study_call) == (["made"], {})
    refused = CliRunner().invoke(cli, ["study", "report", "--scale=smoke"])
    assert refused.exit_code == 2
    assert refused.output == "Error: --scale = 'smoke': has no part in report\n"
    assert reports == ["made"]


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--nodes=trainer", "--nodes = 'trainer': valid are assemble, "),
        ("--from-nodes=trainer", "--from-nodes = 'trainer': valid are assemble, "),
        ("--to-nodes=trainer", "--to-nodes = 'trainer': valid are assemble, "),
        ("--from-inputs=x", "--from-inputs = 'x': valid are accuracy_curve, "),
        ("--to-outputs=x", "--to-outputs = 'x': valid are accuracy_curve, "),
        ("--tags=x", "--tags = 'x': there are none in this project"),
        ("--namespaces=x", "--namespaces = 'x': there are none in this project"),
        ("--pipeline=x", "--pipelines = 'x': valid are __default__, attack, audit"),
        ("--runner=ParallelRunner", "--runner = 'ParallelRunner': valid are SequentialRunner"),
        ("--runner=Nothing", "--runner = 'Nothing': valid are SequentialRunner"),
        ("--runner-params=threads=2", "--runner-params = 'threads': valid are is_async"),
        ("--load-versions=model:1", "--load-versions = 'model:1': there are none in this project"),
        ("--load-versions=x", "--load-versions = 'x': there are none in this project"),
        ("--pipelines=data,trainig", "--pipelines = 'trainig': valid are __default__, attack"),
        ("--env=fashion", "--env = 'fashion': no such environment; there are "),
        ("--async", "--async = True: "),
        ("--runner-params=is_async=True", "--runner-params = 'is_async=True': "),
        (
            "--nodes=split --to-outputs=network_table",
            "--nodes = 'split': no node is left; choose fewer things at once",
        ),
    ],
)
def test_what_no_pipeline_has_is_one_line(project, kedro_run, option, line):
    result = kedro_run(*option.split(), code=2)
    assert result.output.startswith(f"Error: {line}")
    assert result.output.count("\n") == 1
    mlflow.set_tracking_uri(tracking_uri(project))
    assert mlflow.search_runs(search_all_experiments=True, output_format="list") == []


def test_names_of_pipelines_are_known_without_their_nodes(project):
    assert sorted(pipeline_names()) == sorted(all_pipelines())
