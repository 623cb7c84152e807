"""Runs that are cut off and go on: the same bytes as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from math import isnan

import mlflow
import psutil
import pytest
import torch
from kedro.framework.session import KedroSession
from mlflow.exceptions import MlflowException
from tests.finished import all_runs, histories, only_run, report, results, run_of

from m2fdp import load_config
from m2fdp.checkpoints.files import Checkpoint, save
from m2fdp.core.config import Config, essentials
from m2fdp.core.engine.process import State
from m2fdp.core.engine.training import Progress
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import promised_epsilon
from m2fdp.core.privacy import calibration
from m2fdp.given.loading import parse_config
from m2fdp.pipelines.cells import computed_otherwise, find_unfinished, resumed_verdict
from m2fdp.pipelines.provenance import Unfinished, computed_by
from m2fdp.pipelines.tracking import process_tag, tracking_uri

SMALL = (
    "topology.fanouts=2|3,training.local_steps=2,training.batch_size=16,threads=1,"
    "training.evaluate_every=2,training.checkpoint_every=3,training.rounds=12"
)
VARIANTS = {
    "gradient": "",
    "upload": ",privacy.mechanism=upload,privacy.calibration=paper,training.batch_size=null,"
    "training.participants=2",
    "cnn": ",model.name=cnn12,model.channels=2|3|4,training.step_size=inverse_sqrt",
}
# `kedro run` that is killed outright: after some rounds, or some seconds after the first one.
DYING = """
import os, signal, sys, threading
from pathlib import Path
from kedro.framework.startup import bootstrap_project
bootstrap_project(Path.cwd())
from m2fdp.cli import run
from m2fdp.core.engine.tree_process import TreeProcess

params, rounds, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
whole_round, done = TreeProcess.round, 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def dying(process, state, plan):
    global done
    if not done:
        threading.Timer(seconds, die).start()
    after, done = whole_round(process, state, plan), done + 1
    if done == rounds:
        die()
    return after

TreeProcess.round = dying
run(["--params", params])
"""


def checkpoints(project, cell="single") -> list[str]:
    folder = project / "data" / "06_models" / cell / "checkpoints"
    return sorted(path.name for path in folder.glob("*"))


def test_a_failed_run_goes_on_from_the_checkpoint_before_a_truncated_one(
    project, kedro_run, finished_run, cut
):
    whole = finished_run("--params", SMALL).results
    assert {"accuracy", "loss", "energy_j", "delay_s", "epsilon"} <= set(whole)
    cut(11)
    assert isinstance(kedro_run("--params", f"{SMALL},cell=cut").exception, OSError)
    assert checkpoints(project, "cut") == ["round-00000006.ckpt", "round-00000009.ckpt"]
    newest = project / "data/06_models/cut/checkpoints/round-00000009.ckpt"
    newest.write_bytes(newest.read_bytes()[:-100])
    failed = run_of("cut")
    assert failed.info.status == "FAILED"
    assert "resume" not in failed.data.params

    cut(None)
    mlflow.MlflowClient().set_tag(failed.info.run_id, "cpu_capability", "an older one")
    result = kedro_run("--params", f"{SMALL},cell=cut,resume=true", code=0)
    output = " ".join(result.output.split())
    assert "round-00000009.ckpt is damaged; it is passed over" in output
    assert "Training goes on after round 6." in output
    assert "cpu_capability was an older one and is" in output
    resumed = run_of("cut")
    assert results(project, "cut", resumed) == whole
    first, second = ((run.info.run_id, run.info.run_name) for run in (failed, resumed))
    assert first == second
    assert resumed.data.params == failed.data.params
    assert resumed.data.tags["resumed_after_round"] == "6"
    assert resumed.data.tags["privacy"] == "verified"  # on its own machine


def test_what_a_failed_store_did_not_take_is_sent_by_the_run_that_goes_on(
    project, kedro_run, finished_run, cut, monkeypatch
):
    whole = finished_run("--params", SMALL).results

    def refuse(*arguments, **options):
        raise MlflowException("API request failed")

    def die():
        for method in ("log_batch", "log_artifact", "log_inputs", "set_terminated"):
            monkeypatch.setattr(f"mlflow.MlflowClient.{method}", refuse)

    with monkeypatch.context() as monkeypatch:
        cut(5, die)
        said = kedro_run("--params", f"{SMALL},cell=cut", code=1).output.splitlines()[-1]
    assert "The files of the run are whole. Once it answers, the same command with resume=" in said
    cut(None)
    kedro_run("--params", f"{SMALL},cell=cut,resume=true", code=0)
    resumed = run_of("cut")
    assert results(project, "cut", resumed) == whole
    assert resumed.outputs.model_outputs and resumed.inputs.dataset_inputs
    assert resumed.data.tags["privacy"] == "verified" and "ended" not in resumed.data.tags


@pytest.mark.parametrize(
    "signum", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)]
)
def test_an_interrupted_run_says_how_it_goes_on_from_its_last_round(
    project, kedro_run, cut, signum
):
    cut(8, lambda: os.kill(os.getpid(), signum))
    result = kedro_run("--params", SMALL, code=128 + signum)
    assert result.output.splitlines()[-1] == (
        f"Stopped by {signum.name}; unfinished runs are marked as killed. Round 7 is saved; the "
        "same command with resume=true in --params goes on from there."
    )
    assert checkpoints(project) == ["round-00000006.ckpt", "round-00000007.ckpt"]
    cut(None)
    result = kedro_run("--params", f"{SMALL},resume=true,training.checkpoint_every=null", code=0)
    assert "Training goes on after round 7." in result.output
    assert [round_ for round_, _ in histories(only_run())["loss"]] == [2, 4, 6, 8, 10, 12]


@pytest.fixture
def unfinished(project):
    """A function that puts a checkpoint of a run, as MLflow knows it, into a cell's folder."""

    def make(status="KILLED", params=None, **tags) -> str:
        with KedroSession.create(project, runtime_params=params) as session:
            config = parse_config(session.load_context().config_loader["parameters"])
        client = mlflow.MlflowClient(tracking_uri(project))
        experiment = client.get_experiment_by_name("m2fdp").experiment_id
        run = client.create_run(experiment, tags=tags)
        client.update_run(run.info.run_id, status)
        progress = Progress(State(3, torch.zeros(640)))
        folder = project / "data" / "06_models" / "single" / "checkpoints"
        save(folder, Checkpoint(progress, run.info.run_id, essentials(config)))
        return run.info.run_id

    return make


def test_only_a_run_that_trains_clears_the_checkpoints_of_the_one_before(
    project, kedro_run, unfinished
):
    unfinished()
    kedro_run("--params", "partition.labels_per_device=11", code=2)
    kedro_run("--pipelines", "data", code=0)
    assert checkpoints(project) == ["round-00000003.ckpt"]
    kedro_run("--params", f"{SMALL},training.rounds=1,training.checkpoint_every=null")
    assert checkpoints(project) == []


def assert_refused(project, kedro_run, *parts, arguments=("--params", "resume=true")):
    def everything():
        files = sorted(path for path in (project / "data").rglob("*") if path.is_file())
        return files, [(run.info.run_id, run.info.status) for run in all_runs()]

    before = everything()
    result = kedro_run(*arguments, code=2)
    assert result.output.startswith("Error: resume = True: ")
    assert result.output.count("\n") == 1
    assert all(part in result.output for part in parts), result.output
    assert everything() == before


def test_what_can_not_go_on_is_one_line_and_stays_as_it_was(project, kedro_run, unfinished):
    client = mlflow.MlflowClient(tracking_uri(project))
    mlflow.set_tracking_uri(tracking_uri(project))
    folder = project / "data/06_models/single/checkpoints"
    assert_refused(project, kedro_run, f"there is no checkpoint in {folder}", "leave resume out")
    run_id = unfinished()
    arguments = ("--pipelines", "data", "--params", "resume=true")
    assert_refused(project, kedro_run, "no training is asked for", arguments=arguments)
    # Its noise is keyed by the records: rounds that are trained again would release the same ones
    # behind other noise. Here nothing says which they were.
    output = kedro_run("--params", "resume=true", code=2).output
    assert "resume = True: the records are not those that the run began with" in output
    client.set_terminated(run_id)
    assert_refused(project, kedro_run, run_id, "is finished")
    client.delete_run(run_id)
    assert_refused(project, kedro_run, run_id, "is deleted")
    config = load_config(project / "conf/base")
    save(folder, Checkpoint(Progress(State(3, torch.zeros(640))), "0" * 32, essentials(config)))
    assert_refused(project, kedro_run, "does not know its run", "0" * 32)
    path = folder / "round-00000003.ckpt"
    path.write_bytes(b"")
    output = kedro_run("--params", "resume=true", code=2).output
    assert "there is no whole checkpoint in" in output.splitlines()[-1] and path.exists()


def test_a_run_that_still_trains_is_left_alone(project, kedro_run, unfinished):
    host, _, _ = process_tag().split(":")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = psutil.Process(process.pid).create_time()
        run_id = unfinished("RUNNING", process=f"{host}:{process.pid}:{started:.2f}")
        assert_refused(project, kedro_run, run_id, "is still going on")
        process.communicate(b"\n")


def test_another_configuration_is_refused_with_the_keys_that_differ(project, kedro_run, unfinished):
    unfinished(params={"training": {"local_aggregation": None}})
    assert_refused(
        project,
        kedro_run,
        "training.learning_rate was 0.5 and is 0.25",
        "training.local_aggregation was {} and is None",
        "training.local_aggregation.1 was None and is 2",
        "features.map was pixels and is scattering",
        "give the former values",
        arguments=(
            "--params",
            "resume=true,threads=2,training.learning_rate=0.25,features.map=scattering",
        ),
    )


def test_a_checkpoint_with_a_value_that_was_removed_is_for_the_version_that_made_it(tmp_path):
    of_0_19 = essentials(Config()) | {"privacy.drift": "smooth", "privacy.smoothness": 1.0}
    progress = Progress(State(3, torch.zeros(640)))
    save(tmp_path, Checkpoint(progress, "0" * 32, of_0_19))
    with pytest.raises(InputError, match="privacy.drift was smooth .* with the version that made"):
        find_unfinished(tmp_path, Config(), "")


def kill(params: str, rounds: int = -1, seconds: float = 60.0) -> int:
    """`kedro run` in a process of its own that is killed; its exit code."""
    command = [sys.executable, "-c", DYING, params, str(rounds), str(seconds)]
    return subprocess.run(command, capture_output=True).returncode


@pytest.mark.full
@pytest.mark.parametrize(("seed", "variant"), list(enumerate(VARIANTS)))
def test_a_run_killed_at_random_rounds_twice_equals_one_that_never_was(
    project, kedro_run, finished_run, seed, variant
):
    params = SMALL + VARIANTS[variant]
    draw = random.Random(seed)
    whole = finished_run("--params", params).results
    assert kill(f"{params},cell=cut", rounds=draw.randint(4, 8)) == -signal.SIGKILL
    params = f"{params},cell=cut,resume=true"
    assert kill(params, rounds=draw.randint(1, 3)) == -signal.SIGKILL
    kedro_run("--params", params, code=0)
    assert results(project, "cut", run_of("cut")) == whole


@pytest.mark.full
def test_a_run_killed_at_random_moments_equals_one_that_never_was(project, kedro_run, finished_run):
    params = f"{SMALL},algorithm=hfl,training.rounds=300,training.checkpoint_every=2"
    whole = finished_run("--params", params).results
    assert "accuracy" in whole and "epsilon" not in whole
    draw = random.Random(0)
    kills = 0
    arguments = f"{params},cell=cut"
    for _ in range(4):
        code = kill(arguments, seconds=draw.uniform(0.1, 0.7))
        assert code in (-signal.SIGKILL, 0)
        if code == 0:
            break
        kills += 1
        if checkpoints(project, "cut"):
            arguments = f"{params},cell=cut,resume=true"
    else:
        kedro_run("--params", arguments, code=0)
    assert kills >= 2
    mlflow.set_tracking_uri(tracking_uri(project))  # also where a process of its own has ended it
    assert results(project, "cut", run_of("cut")) == whole


def test_a_run_goes_on_with_the_split_that_it_began_with_or_not_at_all(
    project, kedro_run, finished_run, unfinished
):
    finished_run("--pipelines=data").copy_data(project)
    manifest = project / "data/05_model_input/single/manifest.csv"
    before = manifest.read_bytes()
    unfinished(split="from disk", split_sha256="0" * 64)
    result = kedro_run("--params", "resume=true", code=2)
    assert result.output == (
        "Error: resume = True: the run trains on a split that lay on the disk; "
        "add --pipelines=training\n"
    )
    edited = kedro_run("--pipelines=training", "--params", "resume=true", code=2)
    last = edited.output.splitlines()[-1]
    assert last.startswith("Error: data/05_model_input/single/manifest.csv = ")
    assert last.endswith("the run began with another split; leave resume out to start anew")
    assert manifest.read_bytes() == before


def on(monkeypatch, capability):
    """As if the CPU had these instructions."""
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)


def test_rounds_that_another_machine_trains_again_make_the_guarantee_conditional(
    kedro_run, project, cut, monkeypatch
):
    """Under the same noise it rounds them otherwise: of the two the difference has no noise. So it
    has where the run comes home, even of rounds that were kept nowhere."""
    params = f"{SMALL},cell=cut"
    on(monkeypatch, "AVX512")
    cut(8)
    assert kedro_run("--params", params).exit_code != 0
    on(monkeypatch, "AVX2")
    cut(7)  # before its first checkpoint
    assert kedro_run("--params", f"{params},resume=true").exit_code != 0
    assert run_of("cut").data.tags["privacy"] == "conditional"
    assert checkpoints(project, "cut") == ["round-00000006.ckpt"]

    on(monkeypatch, "AVX512")
    cut(None)
    output = kedro_run("--params", f"{params},resume=true", code=0).output
    assert "ε is conditional: it holds if nobody saw the rounds" in " ".join(output.split())
    promised = report(project, "privacy_summary.json", "cut")
    resumed = run_of("cut")
    assert promised["guarantee"] == resumed.data.tags["privacy"] == "conditional"
    assert "(cpu_capability was AVX512, AVX2 and is AVX512)" in promised["assumptions"][0]
    assert not any("AVX2 and is" in line for line in promised["assumptions"][1:])
    assert isnan(resumed.data.metrics["epsilon_verified"])
    assert promised_epsilon(resumed.data.metrics) == promised["epsilon_conditional"]

    # What is asked of the run later tells the same, and takes nothing back.
    folder = project / "data/08_reporting/cut"
    told = {name: (folder / name).read_bytes() for name in ("privacy_card.md", "run_summary.json")}
    as_of_019 = {**promised, "guarantee": "verified", "assumptions": promised["assumptions"][1:]}
    as_of_019["epsilon_verified"] = as_of_019.pop("epsilon_conditional")
    for pipeline in ("privacy", "evaluation"):
        (folder / "privacy_summary.json").write_text(json.dumps(as_of_019))
        kedro_run(f"--pipelines={pipeline}", "--params", params, code=0)
        assert {run.data.tags["privacy"] for run in all_runs()} == {"conditional"}
        assert report(project, "privacy_summary.json", "cut") == promised
        assert {name: (folder / name).read_bytes() for name in told} == told


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({}, ""),
        ({"privacy.epsilon": 1.0, "threads": 2}, ""),
        ({"device": "cuda"}, "device was cpu and is cuda, device is cuda, which need not"),
        ({"execution.engine": "ray"}, "execution.engine is ray: nodes are not compared"),
    ],
)
def test_what_may_round_otherwise(now, reason):
    config = load_config(now)
    checkpoint = Checkpoint(None, "", {}, computed_by=[computed_by(load_config({}))])
    found = computed_otherwise(Unfinished(None, checkpoint), config)
    assert reason in found and bool(reason) == bool(found)
    unread = replace(checkpoint, own_code={"losses": "", "helper": "0" * 64})
    again = resumed_verdict(Unfinished(None, unread), config, True, None)
    assert "losses, code of your own, has no file to compare" in again.conditions[0]
    again = Checkpoint(None, "", {}, computed_by=[computed_by(config)])
    assert bool(computed_otherwise(Unfinished(None, again), config)) == bool(reason)


LOSS = """
from own_losses import scaled


def focal(scores, labels):
    return scaled() * (scores.logsumexp(-1) - scores.gather(-1, labels[:, None])[:, 0])
"""
SCALED = "def scaled():\n    import own_constant\n\n    return own_constant.HALF\n"


def test_a_run_goes_on_with_the_code_of_its_own_that_it_began_with(kedro_run, project, cut):
    """Whatever is mended of it, a round that is trained again has another sum under one noise."""
    files = {"own_loss.py": LOSS, "own_losses.py": SCALED, "own_constant.py": "HALF = 0.5\n"}
    params = f"{SMALL},model.loss=own_loss:focal,training.rounds=4,training.checkpoint_every=1"

    def begin_process(changed):
        for name, text in files.items():
            (project / name).write_text(text + changed.get(name, ""))
            sys.modules.pop(name.removesuffix(".py"), None)

    begin_process({})
    cut(3)
    assert isinstance(kedro_run("--params", params).exception, OSError)
    cut(None)
    for name in files:
        begin_process({name: "# mended\n"})
        line = f"{name} is not as the run began with it (model.loss=own_loss:focal)"
        arguments = ("--params", f"{params},resume=true")
        assert_refused(project, kedro_run, line, "give another seed", arguments=arguments)
    # A study finds the run all the same, so that its cell fails and does not begin anew.
    folder = project / "data/06_models/single/checkpoints"
    overrides = dict(pair.split("=") for pair in params.split(","))
    found = find_unfinished(folder, load_config(overrides), tracking_uri(project))
    # Other tests of this process may have imported more since.
    assert {f"{module}.py" for module in found.checkpoint.own_code} >= files.keys()
    begin_process({})
    kedro_run("--params", f"{params},resume=true", code=0)
    begin_process({})
    assert report(project, "privacy_summary.json")["guarantee"] == "verified"


def test_a_run_does_not_go_on_with_other_noise(kedro_run, project, cut, monkeypatch):
    """The ledger would count rounds that an accountant gave half the noise as if they had it all:
    epsilon 2 for what says 1."""
    with monkeypatch.context() as older:
        least = calibration.least_noise
        older.setattr(calibration, "least_noise", lambda *arguments: least(*arguments) / 2)
        older.setattr(calibration, "_ROUNDING", 10)  # of how much may be missing
        cut(8)
        assert isinstance(kedro_run("--params", SMALL).exception, OSError)
    cut(None)
    kept = checkpoints(project)
    output = kedro_run("--params", f"{SMALL},resume=true", code=2).output
    assert output.splitlines()[-1].startswith("Error: resume = True: noise is calibrated otherwise")
    assert "give another seed" in output.splitlines()[-1]
    assert checkpoints(project) == kept
