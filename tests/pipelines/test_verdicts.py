"""The split's verdict, beside the training that it may end."""

import os
import signal

import pandas as pd
import pytest
import yaml
from tests.finished import SMALL, all_runs, only_run

from m2fdp.core.engine.tree_process import TreeProcess
from m2fdp.expectations.process import CHECKER

MANIFEST = "data/05_model_input/single/manifest.csv"


@pytest.fixture
def split(project, finished_run):
    """A function that puts a split on the disk, as the user's own: sound, or with fewer records
    a device than the user's own rule asks for, so that nothing but its rules refuses it."""
    finished_run("--pipelines=data", "--params", SMALL).copy_data(project)

    def make(broken):
        if broken:
            catalog = yaml.safe_load((project / "conf/base/catalog.yml").read_text("utf-8"))
            entry = {"manifest": catalog["manifest"], "_cell": "${runtime_params:cell,single}"}
            entry["manifest"]["validator"]["options"]["min_samples"] = 10_000
            (project / "conf/local/catalog.yml").write_text(yaml.safe_dump(entry), "utf-8")
        table = pd.read_csv(project / MANIFEST)
        table.to_csv(project / MANIFEST, index=False)
        for record in project.rglob("*.passed"):
            record.unlink()

    return make


@pytest.fixture
def rounds(monkeypatch):
    """How many have been trained when each verdict is asked for."""
    trained, seen = [], []
    whole_round, verdict = TreeProcess.round, CHECKER.verdict

    def count(process, state, plan):
        after = whole_round(process, state, plan)
        trained.append(after.round)
        return after

    def see(digest):
        seen.append(len(trained))
        return verdict(digest)

    monkeypatch.setattr(TreeProcess, "round", count)
    monkeypatch.setattr(CHECKER, "verdict", see)
    return seen


def models(project):
    files = (path for path in (project / "data/06_models").rglob("*") if path.is_file())
    return {path.name for path in files} - {".lock"}


@pytest.mark.parametrize(("every", "trained"), [("1", 1), ("null", 3)])
def test_a_broken_split_ends_the_training_that_is_under_way_and_leaves_nothing_of_it(
    project, kedro_run, split, rounds, every, trained
):
    split(broken=True)
    params = f"{SMALL},training.checkpoint_every={every}"
    result = kedro_run("--pipelines=training", "--params", params, code=2)
    last = result.output.splitlines()[-1]
    assert last.startswith(f"Error: manifest: {MANIFEST} breaks its rules: every device holds")
    assert rounds[0] == trained
    assert models(project) == set()
    run = only_run()
    assert run.info.status == "FAILED" and "at least 10000" in run.data.tags["ended"]
    assert (project / "data/08_reporting/single/manifest_checks.html").is_file()
    assert not list(project.rglob("*.passed"))


def test_a_sound_split_that_is_new_is_waited_for_once_and_then_known(
    project, kedro_run, split, rounds
):
    split(broken=False)
    for _ in range(2):
        kedro_run("--pipelines=training", "--params", SMALL, code=0)
    assert rounds == [3]
    assert [path.name for path in project.rglob("*.passed")] == ["manifest_checks.passed"]


def test_a_broken_split_leaves_the_checkpoints_of_the_run_before(project, kedro_run, split):
    split(broken=True)
    folder = project / "data/06_models/single/checkpoints"
    folder.mkdir(parents=True)
    (folder / "round-00000003.ckpt").write_bytes(b"")
    kedro_run("--pipelines=training", "--params", SMALL, code=2)
    assert models(project) == {"round-00000003.ckpt"}


def test_nothing_but_training_goes_on_before_the_verdict(project, kedro_run, finished_run, split):
    finished_run("--params", SMALL).copy_data(project)
    split(broken=True)
    before = {path: path.read_bytes() for path in (project / "data").rglob("*.json")}
    kedro_run("--pipelines=evaluation", "--params", SMALL, code=2)
    assert {path: path.read_bytes() for path in (project / "data").rglob("*.json")} == before
    assert all_runs() == []


def test_a_checker_that_dies_is_one_line_and_no_model(project, kedro_run, split, monkeypatch):
    split(broken=False)
    ask = CHECKER.ask

    def ask_and_die(digest, case):
        CHECKER._verdicts.clear()
        CHECKER.stop()
        ask(digest, case)
        os.kill(CHECKER._process.pid, signal.SIGKILL)

    monkeypatch.setattr(CHECKER, "ask", ask_and_die)
    result = kedro_run("--pipelines=training", "--params", SMALL, code=1)
    assert "process that checks the split has died (exit code -9)" in result.output.splitlines()[-1]
    assert models(project) == set()
    assert only_run().info.status == "FAILED"
