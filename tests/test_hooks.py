"""Runs of tiny pipelines through `kedro run`, in this process: what the hooks make of them."""

import errno
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import wraps

import mlflow
import pandas as pd
import pytest
import torch
from kedro.framework.session import KedroSession
from kedro.pipeline import Node, Pipeline
from mlflow.exceptions import MlflowException
from tests.finished import all_runs, artifacts_of, only_run

from m2fdp import load_config
from m2fdp.core.algorithms import build_plan
from m2fdp.core.config import TrainingConfig, essentials
from m2fdp.core.engine.training import RoundRecord
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.pipelines import tracking
from m2fdp.pipelines.recording import INFINITE_TAG
from m2fdp.pipelines.tracking import END_TAG
from m2fdp.pipelines.training import tracked_progress
from m2fdp.reporting.figures import accuracy_curve
from m2fdp.reporting.pictures import Drawing

MANIFEST = pd.DataFrame(
    {
        "dataset": "digits",
        "sample": [0, 1, 2],
        "split": ["train", "train", "test"],
        "label": [0, 1, 2],
        "device": [0, 1, -1],
    }
)
ROUND_METRICS = pd.DataFrame({"round": [1], "accuracy": [0.5]})


def _zone_rows(observer, *epsilons):
    values = {"v": 10.0, "epsilon_by_h": 1.4, "epsilon_by_h_with_sums": 0.4}
    return [
        values | dict(observer=observer, noise_over_shift=n, epsilon=e, least_epsilon=e / 2)
        for n, e in epsilons
    ]


ZONES = pd.DataFrame(
    [
        *_zone_rows("devices of the zone", (3.0, 1.2), (2.0, 2.4)),
        *_zone_rows("cloud", (0.0, math.inf)),
    ]
)


def _split() -> pd.DataFrame:
    return MANIFEST


def _read(manifest: pd.DataFrame, training: TrainingConfig) -> dict:
    return {"records": len(manifest), "rounds": training.rounds}


@pytest.fixture
def pipeline(monkeypatch):
    """A function that makes the given nodes the project's only pipeline."""

    def use(*nodes: Node) -> None:
        registered = {"__default__": Pipeline(nodes)}
        monkeypatch.setattr("m2fdp.pipeline_registry.register_pipelines", lambda: registered)

    return use


@pytest.fixture
def ends_with(pipeline):
    """A function that makes a pipeline whose first node saves and whose second does `end()`."""

    def use(end) -> None:
        def last(metrics: pd.DataFrame) -> dict:
            return end()

        first = Node(lambda: pd.DataFrame({"round": [1]}), None, "round_metrics", name="first")
        pipeline(first, Node(last, "round_metrics", "run_summary", name="last"))

    return use


def _connect(project) -> None:
    """What a study's parent process does first: Kedro's context points MLflow at the store."""
    with KedroSession.create(project) as session:
        session.load_context()


def test_a_run_records_parameters_provenance_and_split(project, kedro_run, pipeline):
    pipeline(
        Node(_split, None, "manifest", name="split"),
        Node(_read, ["manifest", "params:training"], "run_summary", name="read"),
    )
    kedro_run("--params", "seed=7,threads=1,topology.trust.ratios=1.0,training.rounds=3", code=0)
    run = only_run()
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "m2fdp-digits-threads_1-ratios_1.0-training.rounds_3-seed_7"
    params, tags = run.data.params, run.data.tags
    assert params["training.rounds"] == "3"
    assert params["topology.trust.ratios"] == "[1.0]"
    assert params["privacy.epsilon"] == "4.0"
    assert "training" not in params
    expected = {"seed": "7", "algorithm": "m2fdp", "role": "method", "dataset": "digits"}
    expected |= {"cell": "single", "process": tracking.process_tag()}
    expected["version.torch"] = torch.__version__
    expected["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    assert expected.items() <= tags.items()
    assert tags["cpu"] and len(tags["code"]) == 16
    manifest = project / "data" / "05_model_input" / "single" / "manifest.csv"
    pd.testing.assert_frame_equal(pd.read_csv(manifest), MANIFEST)
    sha256 = subprocess.run(["sha256sum", manifest], capture_output=True, text=True, check=True)
    assert tags["split_sha256"] == sha256.stdout.split()[0]
    files = {"configuration.json", "manifest.csv", "manifest_checks.html", "run_summary.json"}
    assert artifacts_of(run) == files
    experiment = mlflow.get_experiment(run.info.experiment_id)
    assert experiment.name == "m2fdp"
    assert experiment.artifact_location == tracking.artifact_location(project)


def test_parameters_are_those_that_the_run_reads(project, kedro_run, pipeline):
    """The others are in the file beside them, or have their defaults."""
    pipeline(Node(lambda: {}, None, "run_summary", name="read"))
    changes = {"training.rounds": 3, "audit.repetitions": 50, "training.server.rule": "yogi"}
    kedro_run(f"--params={','.join(f'{key}={v}' for key, v in changes.items())}", code=0)
    run = only_run()
    params = run.data.params
    assert params["training.local_aggregation.1"] == "2"
    assert params["training.server.rule"] == "yogi" and "training.server.learning_rate" in params
    assert not {"resume", "control.tau", "zones.device_noise", "audit.repetitions"} & params.keys()
    assert not [key for key in params if key.startswith(("tiering.layers", "clock.", "attack."))]
    artifact = mlflow.artifacts.load_dict(f"{run.info.artifact_uri}/configuration.json")
    assert artifact == essentials(load_config(project / "conf/base", changes))


def test_what_is_saved_becomes_metrics_and_tags(project, kedro_run, pipeline):
    """Of the summary of privacy the epsilons that it claims; of zones also what is infinite; and
    that fewer rounds were trained than asked for."""
    summary = {
        "guarantee": "verified",
        "epsilon_nominal": 1.0,
        "epsilon_verified": "inf",
        "epsilon_by_observer": {"servers": 1.5, "siblings": "inf"},
        "delta": 1e-5,
    }

    metrics = pd.DataFrame({"round": [1, 2]})
    pipeline(
        Node(lambda: summary, None, "privacy_summary", name="calibrate"),
        Node(lambda: ZONES, None, "zones_table", name="tabulate"),
        Node(lambda: metrics, None, "round_metrics", name="train"),
    )
    kedro_run("--params", "training.rounds=3,algorithm=hdp", code=0)
    run = only_run()
    assert run.data.metrics == {
        # MLflow has no infinity.
        "epsilon_nominal": 1.0,
        "epsilon_observer/servers": 1.5,
        "zones/v": 10.0,
        "zones/epsilon_by_h": 1.4,
        "zones/epsilon_by_h_with_sums": 0.4,
        "zones/epsilon/devices_of_the_zone": 2.4,
        "zones/least_epsilon/devices_of_the_zone": 0.6,
        "zones/noise_over_shift/devices_of_the_zone": 2.0,
        "zones/noise_over_shift/cloud": 0.0,
        "rounds_trained": 2,
    }
    infinite = "zones/epsilon/cloud zones/least_epsilon/cloud"
    tags = {"privacy": "verified", "stopped_early": "true", INFINITE_TAG: infinite}
    assert tags.items() <= run.data.tags.items()


@pytest.mark.parametrize("algorithm", ["hfl_dp", "hdp"])
def test_without_zones_of_hs_or_without_rows_a_table_is_no_metric(
    project, kedro_run, pipeline, algorithm
):
    table = ZONES if algorithm == "hfl_dp" else ZONES[:0]
    pipeline(
        Node(lambda: table, None, "zones_table", name="tabulate"),
        Node(lambda: pd.DataFrame({"round": [1, 3]}), None, "round_metrics", name="train"),
    )
    kedro_run("--params", f"training.rounds=3,algorithm={algorithm}", code=0)
    run = only_run()
    assert run.data.metrics == {"rounds_trained": 3}
    assert not {"stopped_early", INFINITE_TAG} & run.data.tags.keys()
    assert ("zones_table.csv" in artifacts_of(run)) == (algorithm == "hfl_dp")


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_known_before_training_waits_for_the_accuracy(project, kedro_run, pipeline, fails):
    """MLflow's page of a run lists metrics in the order in which they came."""
    epsilons = {"epsilon_nominal": 1.0, "epsilon_verified": 0.9, "delta": 1e-5}
    summary = {"guarantee": "verified", **epsilons}

    def train(promised, begin_run):
        data = mlflow.get_run(mlflow.active_run().info.run_id).data
        assert not data.metrics
        assert data.tags["epsilon"] == "0.901 (verified), nominal 1, δ = 1e-05"
        if fails:
            raise ValueError("no model")
        with tracked_progress(3, None, begin_run()) as listener:
            listener.on_round(1, {"K": 2.0}, 0.1)
            listener.on_evaluation(RoundRecord(1, 0.5, 2.0, 1.0, 1.0, 0.9))
        return {"w": torch.zeros(1)}, pd.DataFrame({"round": [3]})

    pipeline(
        Node(lambda: summary, None, "privacy_summary", name="calibrate"),
        Node(lambda: ZONES, None, "zones_table", name="tabulate"),
        Node(train, ["privacy_summary", "begin_run"], ["model", "round_metrics"], name="train"),
    )
    kedro_run("--params=training.rounds=3,algorithm=hdp", code=None if fails else 0)
    metrics = mlflow.get_run(only_run().info.run_id).data.metrics
    assert metrics["epsilon_verified"] == 0.9 and metrics["zones/v"] == 10.0
    if not fails:
        assert next(iter(metrics)) == "accuracy" and metrics["control/K"] == 2


def _slow() -> Drawing:
    time.sleep(0.5)
    return _drawn()


def _drawn() -> Drawing:
    rounds = pd.DataFrame({"round": [1], "accuracy": [1], "epsilon": 1})
    return Drawing.of(accuracy_curve, rounds, "")


@pytest.mark.parametrize("wanted", [True, False])
def test_mlflow_watches_the_machine_where_its_own_variable_says_so(
    project, kedro_run, pipeline, monkeypatch, wanted
):
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", str(wanted).lower())
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING", "1")
    pipeline(Node(_slow, None, "accuracy_curve", name="draw"))
    kedro_run(code=0)
    assert any(name.startswith("system/") for name in only_run().data.metrics) == wanted


def test_figures_are_pdf_too_or_not_drawn_and_leave_none_of_an_earlier_run(
    project, kedro_run, pipeline, caplog
):
    pipeline(Node(_drawn, None, "accuracy_curve", name="draw"))
    drawn = project / "data/08_reporting/single/accuracy_curve.png"
    printed = drawn.with_suffix(".pdf")

    def kept(*params):
        result = kedro_run("--params", f"seed=0,{','.join(params)}", code=0)
        assert "Replacing" not in result.output + caplog.text
        return artifacts_of(all_runs()[0]) - {"configuration.json"}

    assert kept("figures=pdf") == {"accuracy_curve.pdf", "accuracy_curve.png"}
    assert printed.read_bytes().startswith(b"%PDF")
    assert kept("figures=true") == {"accuracy_curve.png"}
    assert drawn.exists() and not printed.exists()
    kept("figures=pdf")
    assert kept("figures=false") == set()
    assert not drawn.exists() and not printed.exists()


def test_git_commit_and_dirty_flag_are_those_of_the_project(project, kedro_run, ends_with):
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        command = ["git", *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    git("add", "pyproject.toml")
    git("commit", "-q", "-m", "first")
    ends_with(lambda: {})
    kedro_run(code=0)
    tags = only_run().data.tags
    assert (tags["git_commit"], tags["git_dirty"]) == (git("rev-parse", "HEAD"), "true")


def test_a_run_checks_and_plans_its_configuration_once(kedro_run, monkeypatch):
    calls = Counter()

    def count(function):
        """Its calls, by whatever module."""

        @wraps(function)
        def counted(*arguments):
            calls[function.__name__] += 1
            return function(*arguments)

        for name, module in list(sys.modules.items()):
            if name.startswith("m2fdp") and vars(module).get(function.__name__) is function:
                monkeypatch.setattr(module, function.__name__, counted)

    count(check_config)
    count(build_plan)
    small = "topology.fanouts=3|2,training.rounds=2,partition.samples_per_device=20"
    kedro_run("--pipelines=__default__,bound", "--params", small, code=0)
    assert calls == {"check_config": 1, "build_plan": 1}


def raising(error):
    def end(*inputs):
        raise error

    return end


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (InputError("training.learning_rate", 9.0, "is too large"), ""),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        # No folder of the project is named.
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/x.csv"), "data/x.csv: No space"),
    ],
)
def test_bad_input_is_one_line_a_bug_keeps_its_traceback_and_both_fail_the_run(
    project, kedro_run, ends_with, error, why
):
    if isinstance(error, OSError):
        error.filename = str(project / error.filename)
    ends_with(raising(error))
    result = kedro_run()
    if isinstance(error, InputError):
        why = "training.learning_rate = 9.0: is too large"
        assert result.exit_code == 2 and "Traceback" not in result.output
        assert result.output.splitlines()[-1] == f"Error: {why}"
    elif isinstance(error, ZeroDivisionError):
        assert result.exception is error
    run = only_run()
    assert run.info.status == "FAILED"
    assert run.data.tags[END_TAG].startswith(why) and why in run.data.tags["mlflow.note.content"]


def test_a_bug_before_anything_is_trained_is_a_failed_run_too(project, kedro_run, pipeline):
    pipeline(Node(lambda: 1 / 0, None, "dataset", name="load_dataset"))
    assert isinstance(kedro_run().exception, ZeroDivisionError)
    assert only_run().info.status == "FAILED"


@pytest.mark.parametrize(
    ("output", "end"),
    [
        (None, None),  # nothing is made of it, and there is no run
        ("run_summary", lambda manifest: pytest.fail("it waits for the verdict")),
        # The split explains the error that it causes.
        ("experiment", raising(IndexError("device out of range"))),
    ],
)
def test_a_manifest_that_breaks_its_rules_is_refused_in_one_line(
    project, kedro_run, pipeline, output, end
):
    split = Node(lambda: MANIFEST.assign(sample=0), None, "manifest", name="split")
    name = "assemble" if output == "experiment" else "read"
    pipeline(split, *([Node(end, "manifest", output, name=name)] if output else []))
    result = kedro_run(code=2)
    last = result.output.splitlines()[-1]
    assert last.startswith("Error: manifest: the manifest breaks its") and "no sample twice" in last
    if output != "experiment":
        assert all_runs() == []
        reports = project / "data" / "08_reporting" / "single"
        assert {path.name for path in reports.iterdir()} == {"manifest_checks.html"}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_node_kills_the_run_and_spares_older_outputs_and_later_runs(
    project, kedro_run, ends_with, signum
):
    older = project / "data" / "08_reporting" / "single" / "run_summary.json"
    older.parent.mkdir(parents=True)
    older.write_text("{}")
    ends_with(lambda: os.kill(os.getpid(), signum))
    for _ in range(2):
        result = kedro_run(code=128 + signum)
        assert "killed" in result.output.splitlines()[-1]
    ends = [(run.info.status, run.data.tags[END_TAG]) for run in all_runs()]
    assert ends == 2 * [("KILLED", f"stopped by {signum.name}")]
    assert older.read_text() == "{}"


def test_the_next_start_closes_the_run_of_a_dead_process(project, kedro_run, ends_with):
    _connect(project)
    # A run whose process is killed outright, as by the kernel for want of memory.
    start = (
        "import os, signal; import mlflow; from m2fdp.pipelines import tracking;"
        "mlflow.start_run(tags={'process': tracking.process_tag()});"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", start]).returncode == -signal.SIGKILL
    stale = only_run()
    assert stale.info.status == "RUNNING"
    ends_with(lambda: {})
    kedro_run(code=0)
    runs = {run.info.run_id: run for run in all_runs()}
    ended = runs.pop(stale.info.run_id)
    assert ended.info.status == "KILLED" and "was killed" in ended.data.tags[END_TAG]
    assert [run.info.status for run in runs.values()] == ["FINISHED"]
    tracking.forget_end(ended)
    assert END_TAG not in mlflow.get_run(stale.info.run_id).data.tags


def test_runs_of_living_processes_and_of_other_hosts_are_left_alone(project):
    _connect(project)
    experiment = mlflow.get_experiment_by_name("m2fdp").experiment_id
    for tag in (tracking.process_tag(), "elsewhere:1:0.00"):
        mlflow.MlflowClient().create_run(experiment, tags={"process": tag})
    assert tracking.close_stale_runs() == []
    assert {run.info.status for run in all_runs()} == {"RUNNING"}


def test_an_interruption_that_a_library_turned_into_an_error_ends_as_one(
    project, kedro_run, ends_with
):
    def interrupted_half_way():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            raise KeyError("half a container")

    ends_with(interrupted_half_way)
    result = kedro_run(code=128 + signal.SIGTERM)
    assert "KeyError" not in result.stderr.splitlines()[-1]
    assert only_run().info.status == "KILLED"


def test_a_worker_that_opened_the_run_itself_keeps_it_and_ends_it(project, ends_with):
    ends_with(lambda: {})
    _connect(project)
    with tracking.closing_runs():
        mlflow.start_run(tags={"study": "quickstart"})
        with KedroSession.create(project, runtime_params={"cell": "quickstart/a"}) as session:
            session.run()
        assert mlflow.active_run() is not None
    run = only_run()
    assert run.info.status == "FINISHED"
    assert {"study": "quickstart", "cell": "quickstart/a"}.items() <= run.data.tags.items()
    assert (project / "data" / "08_reporting" / "quickstart" / "a" / "run_summary.json").is_file()


def test_the_store_is_the_projects_unless_the_environment_names_another(project, monkeypatch):
    assert tracking.tracking_uri(project) == f"sqlite:///{project}/mlruns/mlflow.db"
    assert tracking.artifact_location(project) == (project / "mlruns" / "artifacts").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example.org")
    assert tracking.tracking_uri(project) == "http://tracking.example.org"
    assert tracking.artifact_location(project) is None


def test_a_second_run_of_a_cell_ends_in_one_line_and_leaves_the_first_alone(
    project, kedro_run, ends_with
):
    command = [sys.executable, "-m", "kedro", "run", "--pipelines=topology", "--params=seed=1"]
    second = []

    def another():
        second.append(subprocess.run(command, capture_output=True, text=True))
        return {}

    def fail():
        raise ZeroDivisionError

    ends = [another, fail, fail]
    ends_with(lambda: ends.pop(0)())
    kedro_run(code=0)
    (done,) = second
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: cell = 'single': process {os.getpid()}, begun ")
    assert "cell=NAME" in done.stderr and done.stderr.count("\n") == 1
    assert [run.info.status for run in all_runs()] == ["FINISHED"]
    # Its lock went with it, and goes with a run that fails.
    for _ in range(2):
        assert isinstance(kedro_run().exception, ZeroDivisionError)


def test_a_run_whose_store_dies_keeps_its_files_and_says_what_is_missing(
    project, kedro_run, pipeline, monkeypatch
):
    def refuse(*arguments, **options):
        raise MlflowException("API request failed")

    def train():
        for method in ("log_batch", "log_artifact", "set_terminated"):
            monkeypatch.setattr(f"mlflow.MlflowClient.{method}", refuse)
        return ROUND_METRICS

    pipeline(Node(train, None, "round_metrics", name="train"))
    result = kedro_run(code=1)
    uri = tracking.tracking_uri(project)
    assert result.output.splitlines()[-1] == (
        f"Error: MLflow at {uri} has not taken 1 metrics, 1 tags, 1 files (API request failed). "
        "The files of the run are whole. Once it answers, the same command makes the run anew."
    )
    assert "Traceback" not in result.output
    file = project / "data/07_model_output/single/round_metrics.csv"
    pd.testing.assert_frame_equal(pd.read_csv(file), ROUND_METRICS)
