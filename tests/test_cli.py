import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from kedro.framework.cli.project import run as kedros_own_run

from m2fdp.cli import cli, run
from m2fdp.errors import InputError
from m2fdp.studies.command import Order


def test_run_has_the_options_of_kedros_own_run():
    assert [option.name for option in run.params] == [
        option.name for option in kedros_own_run.params
    ]
    assert run.help == kedros_own_run.help


def test_an_unknown_environment_is_one_line_that_names_the_known_ones(kedro_run):
    result = kedro_run("--env", "fashion")
    assert result.exit_code == 2
    assert result.output.startswith("Error: --env = 'fashion': no such environment; there are ")
    assert "fashion_mnist" in result.output
    assert result.output.count("\n") == 1


def test_an_unknown_pipeline_is_one_line_that_names_the_known_ones(kedro_run):
    result = kedro_run("--pipelines", "data,trainig")
    assert result.exit_code == 2
    assert result.output.startswith("Error: --pipelines = 'trainig': valid are __default__, audit")
    assert result.output.count("\n") == 1


@pytest.fixture
def study_call(monkeypatch):
    """The arguments with which `kedro study` calls the studies, instead of running one."""
    call = {}

    def record(order, **options):
        call.update(options, order=order)

    monkeypatch.setattr("m2fdp.studies.command.study", record)
    return call


def test_study_hands_its_options_on(project, study_call):
    options = ["--resume", "--workers=3", "--ray-address=auto", "--env=mnist", "--scale=smoke"]
    options += ["--only=arm=p1_1", "--only", "privacy.epsilon=2"]
    arguments = ["study", "fig7", *options, "--params=seed=1,a.b=2"]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert study_call == {
        "order": Order("fig7", "smoke", "mnist", {"seed": 1, "a": {"b": 2}}),
        "only": ("arm=p1_1", "privacy.epsilon=2"),
        "resume": True,
        "workers": 3,
        "ray_address": "auto",
    }
    order = study_call["order"]
    assert order.identity == "fig7-mnist-smoke"
    assert order.command == "kedro study fig7 --scale=smoke --env=mnist --params=seed=1,a.b=2"


def test_study_without_options_leaves_the_choices_to_the_studies(project, study_call):
    assert CliRunner().invoke(cli, ["study", "quickstart"]).exit_code == 0
    assert study_call == {
        "order": Order("quickstart"),
        "only": (),
        "resume": False,
        "workers": None,
        "ray_address": None,
    }
    order = study_call["order"]
    assert (order.identity, order.command) == ("quickstart", "kedro study quickstart")


def test_study_report_runs_no_study(project, study_call, monkeypatch):
    reports = []
    monkeypatch.setattr("m2fdp.studies.command.report", lambda: reports.append("made"))
    assert CliRunner().invoke(cli, ["study", "report"]).exit_code == 0
    assert (reports, study_call) == (["made"], {})
    refused = CliRunner().invoke(cli, ["study", "report", "--scale=smoke"])
    assert refused.exit_code == 2
    assert refused.output == "Error: --scale = 'smoke': has no part in report\n"
    assert reports == ["made"]


def test_a_study_that_is_refused_ends_in_one_line(project, monkeypatch):
    def refuse(order, **options):
        raise InputError("study", order.name, "no such study")

    monkeypatch.setattr("m2fdp.studies.command.study", refuse)
    result = CliRunner().invoke(cli, ["study", "fig99"])
    assert result.exit_code == 2
    assert result.output == "Error: study = 'fig99': no such study\n"


@pytest.mark.parametrize("command", [["-m", "m2fdp"], ["-m", "kedro", "run"]])
def test_both_entry_points_end_a_bad_configuration_in_one_line(project, command):
    result = subprocess.run(
        [sys.executable, *command, "--params=training.rounds=many"],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: training.rounds = 'many': ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--nodes=trainer", "--nodes = 'trainer': valid are calibrate, "),
        ("--from-nodes=trainer", "--from-nodes = 'trainer': valid are calibrate, "),
        ("--to-nodes=trainer", "--to-nodes = 'trainer': valid are calibrate, "),
        ("--from-inputs=x", "--from-inputs = 'x': valid are accuracy_curve, "),
        ("--to-outputs=x", "--to-outputs = 'x': valid are accuracy_curve, "),
        ("--tags=x", "--tags = 'x': there are none in this project"),
        ("--namespaces=x", "--namespaces = 'x': there are none in this project"),
        ("--pipeline=x", "--pipelines = 'x': valid are __default__, audit"),
        ("--runner=ParallelRunner", "--runner = 'ParallelRunner': valid are SequentialRunner"),
        ("--runner=Nothing", "--runner = 'Nothing': valid are SequentialRunner"),
        ("--runner-params=threads=2", "--runner-params = 'threads': valid are is_async"),
        ("--load-versions=model:1", "--load-versions = 'model': there are none in this project"),
    ],
)
def test_what_no_pipeline_has_is_one_line(kedro_run, option, line):
    result = kedro_run(option)
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {line}")
    assert result.output.count("\n") == 1


def test_options_that_leave_no_node_are_one_line(kedro_run):
    result = kedro_run("--nodes=split", "--to-outputs=network_table")
    assert result.exit_code == 2
    assert result.output == (
        "Error: --nodes = 'split': no node is left; choose fewer things at once\n"
    )
