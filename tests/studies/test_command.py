"""Real studies of tiny runs through `kedro study`, with real worker processes."""

import json
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter

import mlflow
import pandas as pd
import pytest
from click.testing import CliRunner

from m2fdp.cli import study
from m2fdp.pipelines.tracking import locked, tracking_uri

SHARED = """
title: Tiny
parameters:
  training: {rounds: 2, local_steps: 1, batch_size: null}
  topology: {fanouts: [2, 3], trust: {ratios: [0.5]}}
"""


@pytest.fixture
def kedro_study(project):
    """`kedro study` in this process, of the study `tiny` that the given lines complete, or of
    another; it must end with the given exit code."""

    def invoke(lines: str, *arguments: str, code: int, name: str = "tiny"):
        shared = "title: Tiny" if "\nparameters:" in lines else SHARED
        (project / "conf/base/studies/tiny.yml").write_text(shared + lines)
        result = CliRunner().invoke(study, [name, *arguments])
        assert result.exit_code == code, result.output
        return result

    return invoke


def kedro_study_report(code: int):
    result = CliRunner().invoke(study, ["report"])
    assert result.exit_code == code, result.output
    return result


def runs(project, **tags) -> list[mlflow.entities.Run]:
    mlflow.set_tracking_uri(tracking_uri(project))
    query = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    options = {"search_all_experiments": True, "output_format": "list"}
    return mlflow.search_runs(filter_string=query, **options)


def cells(project) -> list[mlflow.entities.Run]:
    """All runs of cells, those of searches too."""
    return [run for run in runs(project) if "cell_hash" in run.data.tags]


def statuses(some: list[mlflow.entities.Run]) -> Counter:
    return Counter(run.info.status for run in some)


def check_page(parent) -> None:
    """The study's page shows its table and figure, and links a view of exactly its runs."""
    note = parent.data.tags["mlflow.note.content"]
    assert "failed" not in note and "3 of 3 cells are finished" in note
    assert "| algorithm | arm |" in note
    assert f"get-artifact?path=comparison.png&run_uuid={parent.info.run_id}" in note
    for mode in ("CHART", "TABLE"):
        assert f"viewStateShareKey=tiny&compareRunsMode={mode}&workflowType" in note
    experiment = mlflow.get_experiment(parent.info.experiment_id)
    view = json.loads(experiment.tags["mlflow.sharedViewState.tiny"])
    chosen = [parent.info.experiment_id], view["searchFilter"]
    runs_shown = mlflow.search_runs(*chosen, output_format="list")
    assert {run.data.tags["arm"] for run in runs_shown} == {"reference", "noisy", "impossible"}
    assert {run.info.status for run in runs_shown} == {"FINISHED"} and len(runs_shown) == 3
    assert len({run.info.run_name for run in runs_shown}) == 3
    assert view["groupBy"]["groupByKeys"][1] == {"mode": "tag", "groupByData": "arm"}


@pytest.mark.full
def test_a_failing_cell_stops_no_other_and_resume_runs_only_it(project, kedro_study):
    arms = """
arms:
  open: {algorithm: hfl}
  noisy: {algorithm: hfl_dp}
  impossible: {algorithm: hfl, partition.labels_per_device: %d}
grid: {seed: [5]}
"""
    result = kedro_study(arms % 11, "--workers=2", code=1)
    log = project / "data/08_reporting/tiny/logs/impossible-seed_5.log"
    (failure,) = [line for line in result.output.splitlines() if "FAILED" in line]
    assert "partition.labels_per_device = 11" in failure and str(log) in failure
    assert "Traceback" in log.read_text() and "Traceback" not in result.output
    assert multiprocessing.active_children() == []

    (parent,) = runs(project, role="study")
    assert parent.data.tags["study"] == "tiny"
    note = parent.data.tags["mlflow.note.content"]
    assert "**1 failed cell:**" in note and "- impossible-seed_5: partition.labels" in note
    assert "2 of 3 cells are finished" in note and "kedro study tiny" in note
    found = runs(project, **{"mlflow.parentRunId": parent.info.run_id})
    ends = {run.data.tags["cell"]: run.info.status for run in found}
    of_arms = {"open": "FINISHED", "noisy": "FINISHED", "impossible": "FAILED"}
    assert ends == {f"tiny/{arm}-seed_5": status for arm, status in of_arms.items()}
    (noisy,) = [run for run in found if run.data.tags["algorithm"] == "hfl_dp"]
    assert (noisy.data.tags["seed"], noisy.data.tags["role"]) == ("5", "baseline")
    assert len(noisy.data.tags["cell_hash"]) == 64
    assert "accuracy" in noisy.data.metrics
    assert (project / "data/07_model_output/tiny/noisy-seed_5/round_metrics.csv").is_file()
    of_noisy = project / "data/08_reporting/tiny/noisy-seed_5"
    assert not list(of_noisy.glob("*.png")) and (of_noisy / "privacy_card.md").is_file()
    assert ".png" not in (of_noisy / "privacy_card.md").read_text()
    comparison = pd.read_csv(project / "data/08_reporting/tiny/comparison.csv")
    assert set(comparison["algorithm"]) == {"hfl", "hfl_dp"}
    assert set(comparison["arm"]) == {"open", "noisy"}
    assert "partition.labels_per_device" not in comparison

    arms = arms.replace("open", "reference")
    result = kedro_study(arms % 2, "--workers=1", "--resume", code=0)
    assert "2 of 3 cells are finished already" in result.output
    assert "[1/1] impossible-seed_5: finished" in result.output
    assert "make ui" in result.output
    comparison = pd.read_csv(project / "data/08_reporting/tiny/comparison.csv")
    assert set(comparison["arm"]) == {"reference", "noisy", "impossible"}
    assert statuses(runs(project)) == {"FINISHED": 4, "FAILED": 1}
    (parent,) = runs(project, role="study")
    assert parent.info.status == "FINISHED"
    check_page(parent)
    files = {file.path for file in mlflow.MlflowClient().list_artifacts(parent.info.run_id)}
    assert files == {*COMPARED, "report.md"}
    for file in files:
        assert str(project / "data/08_reporting/tiny" / file) in result.output


def test_a_study_that_another_process_runs_is_refused_before_it_opens_a_run(project, kedro_study):
    lock = project / "data/08_reporting/tiny/.lock"
    with locked(lock, "study", "tiny", "stop it"):
        result = kedro_study("\ngrid: {seed: [5]}\narms: {open: {algorithm: hfl}}\n", code=2)
    assert f"study = 'tiny': process {os.getpid()}, begun " in result.output
    assert result.output.count("\n") == 1
    assert runs(project) == []


SEARCHED = """
arms:
  open: {algorithm: hfl, space: rates}
  noisy: {algorithm: hfl_dp, space: as_open}
grid: {seed: [5]}
versions:
  plain: {arms: [open], parameters: {training.learning_rate: 0.125}}
  tuned:
    search:
      seeds: [7]
      validation_fraction: 0.25
      spaces:
        rates: {grids: [{training.learning_rate: [1.0e-9, 0.5]}]}
        as_open: {schedule_of: open, grids: [{training.rounds: [3]}]}
figure:
  panels:
    - {title: Tuned, x: round, where: {version: tuned}}
    - {title: At the end, x: arm, lines: version}
claims:
  - claim: It learns without noise
    source: J Fig. 5
    paper: more than chance
    measure: accuracy
    of: {arm: open}
    at_least: 0.01
    versions: [tuned]
"""
# Eleven labels a device are more than the digits have, which only the data can tell.
HOPELESS = """
  hopeless:
    arms: [open]
    search:
      seeds: [7]
      validation_fraction: 0.25
      spaces: {rates: {grids: [{partition.labels_per_device: [11]}]}}
"""
COMPARED = [f"comparison.{suffix}" for suffix in ("csv", "md", "pdf", "png")]
REPORTED = ["claims.csv", *COMPARED, "procedures.csv", "report.md", "search.csv"]


def reported(project) -> dict[str, bytes]:
    """What the study's reports hold, by the files' names."""
    folder = project / "data/08_reporting/tiny"
    files = [file for file in folder.iterdir() if file.is_file() and file.name != ".lock"]
    return {file.name: file.read_bytes() for file in files}


def ends_of_cells(project) -> dict[str, tuple[str, int]]:
    """By run: its status, and when it ended."""
    return {run.info.run_id: (run.info.status, run.info.end_time) for run in cells(project)}


@pytest.mark.full
def test_a_study_with_searches_from_its_first_run_to_its_reports(project, kedro_study):
    # One search of three finishes nothing: its cells are printed, and the others reported.
    result = kedro_study(SEARCHED.replace("figure:", HOPELESS.lstrip("\n") + "figure:"), code=1)
    assert "[3/3]" in result.output and "[1/1] search/tuned-noisy-seed_7-1" in result.output
    assert "hopeless-open-seed_5: FAILED, no candidate of its search finished" in result.output
    assert "1 of 4 cells failed; --resume runs only them." in result.output
    text = (project / "data/08_reporting/tiny/report.md").read_text()
    assert "3 of 4 cells are finished" in text
    assert "| hopeless | open |  | 1 | 0 | none finished | – |" in text
    compared = pd.read_csv(project / "data/08_reporting/tiny/comparison.csv")
    lines = {("plain", "open"), ("tuned", "open"), ("tuned", "noisy")}
    assert set(compared[["version", "arm"]].itertuples(index=False, name=None)) == lines
    assert compared["seeds"].tolist() == [1, 1, 1]  # no run of a search is among them

    check_choices(project)

    # Without it the study is finished, and nothing is run again.
    before = ends_of_cells(project)
    result = kedro_study(SEARCHED, "--resume", code=0)
    for done in ("2 of 2 runs of the search", "1 of 1 runs of the search", "3 of 3 cells"):
        assert f"{done} are finished already." in result.output
    assert ends_of_cells(project) == before
    files = reported(project)
    assert sorted(files) == sorted(REPORTED)
    again = pd.read_csv(project / "data/08_reporting/tiny/comparison.csv")
    pd.testing.assert_frame_equal(again, compared)
    (parent,) = runs(project, role="study")
    logged = {file.path for file in mlflow.MlflowClient().list_artifacts(parent.info.run_id)}
    assert logged == set(REPORTED)

    check_report_alone(project, files)


def check_choices(project) -> None:
    """The best rate on held-out records is that of the final cells; the reports say so."""
    tried = runs(project, study="tiny", stage="search", version="tuned")
    by_rate = {
        float(run.data.params["training.learning_rate"]): run.data.metrics["accuracy"]
        for run in tried
        if run.data.tags["arm"] == "open"
    }
    assert by_rate.keys() == {1e-9, 0.5}
    assert by_rate[1e-9] != by_rate[0.5]  # or the order in the file would decide
    best = max(by_rate, key=by_rate.get)
    assert {run.data.params["training.evaluate_on"] for run in tried} == {"validation"}
    assert {run.data.params["seed"] for run in tried} == {"7"}

    final = {
        (run.data.tags["version"], run.data.tags["arm"]): run.data.params
        for run in runs(project, study="tiny")
        if "cell_hash" in run.data.tags and "stage" not in run.data.tags
    }
    expected = {("plain", "open"): (0.125, 2), ("tuned", "open"): (best, 2)}
    expected |= {("tuned", "noisy"): (best, 3)}
    assert final.keys() == expected.keys()
    for place, params in final.items():
        schedule = float(params["training.learning_rate"]), int(params["training.rounds"])
        assert schedule == expected[place]
        assert params["training.evaluate_on"] == "test"
        assert float(params["partition.validation_fraction"]) == 0
        assert params["seed"] == "5"

    searched = pd.read_csv(project / "data/08_reporting/tiny/search.csv")
    tried = searched[(searched["version"] == "tuned") & (searched["arm"] == "open")]
    assert tried["schedule"].tolist() == [f"training.learning_rate={rate}" for rate in (1e-9, 0.5)]
    assert tried["accuracy_mean"].tolist() == pytest.approx([by_rate[1e-9], by_rate[0.5]])
    assert tried["chosen"].tolist() == [best == 1e-9, best == 0.5]
    text = (project / "data/08_reporting/tiny/report.md").read_text()
    end = "largest" if best == 0.5 else "smallest"
    assert f"| tuned | open |  | 2 | 1 | training.learning_rate={best} ({end} tried) |" in text
    schedule = f"training.learning_rate={best}, training.rounds=3"
    assert f"| tuned | noisy |  | 1 | 1 | {schedule} |" in text


def check_report_alone(project, files) -> None:
    """`kedro study report` makes the same files from MLflow, and tells what is unfinished."""
    before = ends_of_cells(project)
    for folder in ("08_reporting", "07_model_output", "06_models"):
        shutil.rmtree(project / "data" / folder)
    result = kedro_study_report(code=0)
    assert reported(project) == files
    assert ends_of_cells(project) == before
    assert "tiny: Tiny" in result.output and "3 of 3 cells are finished" in result.output
    assert "It learns without noise" in result.output
    summary = project / "data/08_reporting/report.md"
    assert str(summary) in result.output
    text = summary.read_text()
    assert "[tiny](tiny/report.md): 3 of 3 cells are finished." in text
    assert "| It learns without noise | J Fig. 5 | more than chance |" in text
    assert "(n = 1), no DP: open | open |" in text  # one seed is no verdict

    # As if a cell had failed.
    (noisy,) = runs(project, cell="tiny/tuned-noisy-seed_5")
    mlflow.MlflowClient().set_terminated(noisy.info.run_id, "FAILED")
    before = ends_of_cells(project)
    result = kedro_study_report(code=0)
    assert "2 of 3 cells are finished" in result.output
    assert "2 of 3 cells are finished" in reported(project)["report.md"].decode()
    assert ends_of_cells(project) == before


@pytest.mark.full
def test_a_study_may_be_run_in_parts(project, kedro_study):
    # The search of `noisy` follows that of `open`, which is made for it.
    result = kedro_study(SEARCHED, "--only=version=tuned", "--only=arm=noisy", code=0)
    assert len(runs(project, study="tiny", stage="search")) == 3
    assert "1 of 3 cells are finished." in result.output

    # Resumed, another part is reported together with what is there; nothing is run again.
    before = ends_of_cells(project)
    result = kedro_study(SEARCHED, "--only=version=plain", "--resume", code=0)
    ends = ends_of_cells(project)
    assert len(ends) == len(before) + 1 and before.items() <= ends.items()
    assert "2 of 3 cells are finished" in reported(project)["report.md"].decode()

    # The parts come to the whole.
    result = kedro_study(SEARCHED, "--resume", code=0)
    assert "2 of 3 cells are finished already." in result.output
    assert len(ends_of_cells(project)) == len(ends) + 1
    assert "3 of 3 cells are finished" in reported(project)["report.md"].decode()


def test_a_counted_search_keeps_to_epsilon_with_the_run_that_it_chooses(project, kedro_study):
    study = """
arms:
  counted: {algorithm: m2fdp, space: rates}
grid: {seed: [5]}
versions:
  v:
    search:
      counted: true
      validation_fraction: 0.2
      spaces: {rates: {grids: [{training.learning_rate: [0.5, 4.0]}]}}
"""
    kedro_study(study, "--workers=2", code=0)
    table = pd.read_csv(project / "data/08_reporting/tiny/procedures.csv").set_index("kind")
    assert (table["runs"] == 3).all()
    read = table[table["distrusted"]]
    assert (read["epsilon_released"] < 3.6).all()
    assert ((read["epsilon"] > 3.9) & (read["epsilon"] <= 4.0)).all()
    assert "ε of the whole" in (project / "data/08_reporting/tiny/report.md").read_text()
    searched = runs(project, stage="search")
    rate = "training.learning_rate"
    scores = {run.data.params[rate]: run.data.metrics["score"] for run in searched}
    every = runs(project, arm="counted")
    (released,) = (run for run in every if "stage" not in run.data.tags)
    assert len(every) == 3
    assert released.data.params["training.learning_rate"] == max(scores, key=scores.get)
    assert all("held_out" not in run.data.tags for run in searched)
    assert (table[["guarantee_released", "guarantee"]] == "verified").all(axis=None)
    # Had one been resumed elsewhere, the whole would be as conditional.
    mlflow.MlflowClient().set_tag(searched[0].info.run_id, "privacy", "conditional")
    result = kedro_study(study, "--resume", code=0)
    assert "2 of 2 runs of the search are finished already." in result.output
    table = pd.read_csv(project / "data/08_reporting/tiny/procedures.csv")
    assert set(table["guarantee_released"]) == {"verified"}
    assert set(table["guarantee"]) == {"conditional"}
    lines = (project / "data/08_reporting/tiny/report.md").read_text().splitlines()
    of_whole = [line for line in lines if line.endswith(" cond. |")]
    assert of_whole and all(line.count("cond.") == 1 for line in of_whole)
    # Runs of other candidates were seen, and would come on top of epsilon.
    longer = study.replace("[0.5, 4.0]", "[0.5, 2.0, 4.0]")
    result = kedro_study(longer, "--resume", code=2)
    refused = "search.counted = True: counts the candidates that there are now, and 2 runs"
    assert f"study.tiny.{refused}" in result.output
    assert len(runs(project, stage="search")) == 2


@pytest.mark.full
def test_a_scale_is_a_study_of_its_own(project, kedro_study):
    scales = "scales: {smoke: {parameters: {training.rounds: 1}, grid: {seed: [9]}}}\n"
    report_file = project / "data/08_reporting/tiny/report.md"
    report_file.parent.mkdir(parents=True)
    report_file.write_text("the study's own")
    lines = "grid: {algorithm: [hfl], seed: [0, 1, 2]}\n" + scales
    kedro_study(lines, "--scale=smoke", code=0)
    (cell,) = cells(project)
    assert cell.data.tags["study"] == "tiny-smoke"
    assert (cell.data.params["training.rounds"], cell.data.params["seed"]) == ("1", "9")
    text = (report_file.parents[1] / "tiny-smoke/report.md").read_text()
    assert "# Tiny (smoke scale)" in text and "kedro study tiny --scale=smoke" in text
    assert "1 of 1 cell is finished" in text
    assert reported(project) == {"report.md": b"the study's own"}
    assert not (report_file.parent / "logs").exists()


def began(project, identity: str, name: str, **order) -> None:
    """As if a study had been started that then ended without a run."""
    mlflow.set_tracking_uri(tracking_uri(project))
    if mlflow.get_experiment_by_name("m2fdp") is None:
        mlflow.create_experiment("m2fdp", (project / "mlruns" / "artifacts").as_uri())
    mlflow.set_experiment("m2fdp")
    order = {"name": name, "scale": None, "env": None, "params": {}} | order
    with mlflow.start_run(tags={"study": identity, "role": "study", "order": json.dumps(order)}):
        pass


def test_the_report_leaves_out_what_can_no_longer_be_read(project):
    began(project, "gone", "gone")
    began(project, "quickstart-mars", "quickstart", env="mars")
    began(project, "quickstart-huge", "quickstart", scale="huge")
    began(project, "quickstart", "quickstart")
    result = kedro_study_report(code=2)
    gone, huge, mars, end = result.output.splitlines()
    assert gone.startswith("gone: left out; study = 'gone': no such study")
    assert huge.startswith("quickstart-huge: left out; --scale = 'huge'")
    assert mars.startswith("quickstart-mars: left out; --env = 'mars'")
    assert end == "Error: studies = '(none)': none has a finished run; `kedro study quickstart`"
    assert not (project / "data/08_reporting").exists()


@pytest.mark.full
def test_no_byte_depends_on_the_number_of_workers(project, kedro_study):
    grid = "grid: {algorithm: [m2fdp, pedpfl], seed: [0]}\n"
    contents = []
    for workers in (1, 2):
        # Kernels round alike at equal thread counts only, and workers share the cores.
        kedro_study(grid, f"--workers={workers}", "--params=threads=1", code=0)
        names = ("data/06_models/tiny/*/model.pt", "data/07_model_output/tiny/*/*.csv")
        files = sorted(file for name in names for file in project.glob(name))
        assert len(files) == 6
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]


def when_a_cell_runs(project, do, checkpoints: int = 0) -> threading.Thread:
    """Start a thread that calls `do(pid of the worker)` once the first cell has its run, and so
    many checkpoints."""

    def watch() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            kept = len(list(project.glob("data/06_models/tiny/*/checkpoints/round-*")))
            for run in runs(project, study="tiny") if kept >= checkpoints else ():
                if run.info.status == "RUNNING" and "cell_hash" in run.data.tags:
                    return do(int(run.data.tags["process"].split(":")[1]))
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.full
def test_on_ray_the_cell_of_a_killed_worker_is_run_again(project, kedro_study, ray_cluster):
    watcher = when_a_cell_runs(project, lambda pid: os.kill(pid, signal.SIGKILL))
    grid = "grid: {algorithm: [hfl, pedpfl, m2fdp], seed: [0]}\n"
    kedro_study(grid, f"--ray-address={ray_cluster}", code=0)
    watcher.join()
    assert statuses(cells(project)) == {"KILLED": 1, "FINISHED": 3}
    ended = [run for run in cells(project) if run.info.status == "FINISHED"]
    assert {run.data.params["threads"] for run in ended} == {"1"}
    log = (project / "data/08_reporting/tiny/logs/m2fdp-seed_0.log").read_text()
    assert "MLflow run m2fdp-seed_0" in log
    assert (project / "data/07_model_output/tiny/m2fdp-seed_0/round_metrics.csv").is_file()
    assert (project / "data/08_reporting/tiny/comparison.csv").is_file()


@pytest.mark.full
def test_runs_of_a_study_on_ray_share_its_cluster(project, kedro_study, ray_cluster):
    """Of two cores a run takes one, and its rounds the other: one run after the other."""
    grid = "grid: {algorithm: [hfl, m2fdp], seed: [0]}\n"
    on_ray = (f"--ray-address={ray_cluster}", "--params=execution.engine=ray")
    kedro_study(grid, *on_ray, code=0)
    for name in ("hfl", "m2fdp"):
        log = (project / f"data/08_reporting/tiny/logs/{name}-seed_0.log").read_text()
        assert "Ray: 1 core of 1 node (" in log
    # What rounds are computed by is no part of a cell, so the same study has nothing left to do.
    result = kedro_study(grid, "--resume", code=0)
    assert "2 of 2 cells are finished already" in result.output
    # Of what a run can't have at all it says so.
    asks = (on_ray[0], f"{on_ray[1]},execution.workers=2")
    result = kedro_study("grid: {seed: [0]}\n", *asks, code=2)
    assert result.output.splitlines()[-1] == (
        "Error: execution.workers = 2: with a core for the run itself is more than the cluster's 2"
    )


@pytest.mark.full
def test_an_interrupted_study_on_ray_ends_its_runs_as_killed(project, kedro_study, ray_cluster):
    watcher = when_a_cell_runs(project, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    arguments = (f"--ray-address={ray_cluster}", "--params=training.rounds=100000")
    kedro_study("grid: {algorithm: [hfl]}\n", *arguments, code=143)
    watcher.join()
    assert statuses(runs(project)) == {"KILLED": 2}


@pytest.mark.parametrize(
    ("address", "environment", "part"),
    [
        ("127.0.0.1:9", "", "'127.0.0.1:9': nothing answers there"),
        ("nohost.invalid:6379", "", "'nohost.invalid:6379': nothing answers there"),
        ("auto", "127.0.0.1:9", "'127.0.0.1:9': nothing answers there"),
        ("127.0.0.1", "", "'127.0.0.1': write auto, or HOST:PORT"),
    ],
)
def test_a_cluster_that_does_not_answer_ends_in_one_line(
    project, kedro_study, monkeypatch, address, environment, part
):
    pytest.importorskip("ray", reason="Ray is an extra: requirements-ray.lock")
    monkeypatch.setenv("RAY_ADDRESS", environment)
    start = time.monotonic()
    result = kedro_study("grid: {seed: [0]}\n", f"--ray-address={address}", code=2)
    assert time.monotonic() - start < 30
    (line,) = result.output.splitlines()
    assert line.startswith(f"Error: --ray-address = {part}")
    assert runs(project) == []


def test_without_ray_one_line_says_how_to_install_it(project, kedro_study, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = kedro_study("grid: {seed: [0]}\n", "--ray-address=auto", code=2).output
    how = "pip install -r requirements-ray.lock"
    assert said == f"Error: --ray-address = 'auto': needs Ray: {how}\n"
    assert runs(project) == []


LONG = """
parameters:
  threads: 1
  training: {rounds: 400, local_steps: 1, evaluate_every: 50, checkpoint_every: 10}
  topology: {fanouts: [2, 3], trust: {ratios: [0.5]}}
grid: {algorithm: [hfl], seed: [0]}
"""


@pytest.mark.full
def test_the_cell_of_a_killed_worker_goes_on_from_its_checkpoint(project, kedro_study):
    watcher = when_a_cell_runs(project, lambda pid: os.kill(pid, signal.SIGKILL), 2)
    kedro_study(LONG, "--workers=1", code=0)
    watcher.join()
    (cell,) = cells(project)
    assert cell.info.status == "FINISHED"
    assert int(cell.data.tags["resumed_after_round"]) >= 20
    history = mlflow.MlflowClient().get_metric_history(cell.info.run_id, "accuracy")
    assert sorted(metric.step for metric in history) == list(range(50, 401, 50))


@pytest.mark.full
def test_resume_goes_on_with_an_unfinished_cell_and_a_new_study_does_not(project, kedro_study):
    watcher = when_a_cell_runs(project, lambda _: os.kill(os.getpid(), signal.SIGINT), 2)
    result = kedro_study(LONG, "--workers=1", code=130)
    watcher.join()
    assert "--resume runs what is missing" in result.output
    (killed,) = cells(project)
    folder = project / "data/06_models/tiny/hfl-seed_0/checkpoints"
    checkpoints = {file.name: file.read_bytes() for file in folder.iterdir()}

    result = kedro_study(LONG, "--workers=1", "--resume", code=0)
    (cell,) = cells(project)
    assert (cell.info.run_id, cell.info.status) == (killed.info.run_id, "FINISHED")
    assert int(cell.data.tags["resumed_after_round"]) >= 20

    # As if it had been killed after all; a study without --resume starts it anew.
    mlflow.MlflowClient().set_terminated(cell.info.run_id, "KILLED")
    for name, content in checkpoints.items():
        (folder / name).write_bytes(content)
    result = kedro_study(LONG, "--workers=1", code=0)
    assert statuses(cells(project)) == {"KILLED": 1, "FINISHED": 1}
    (anew,) = [run for run in cells(project) if run.info.status == "FINISHED"]
    assert "resumed_after_round" not in anew.data.tags


def test_an_interrupted_study_ends_its_runs_as_killed(project, kedro_study):
    watcher = when_a_cell_runs(project, lambda _: os.kill(os.getpid(), signal.SIGINT))
    kedro_study("grid: {algorithm: [hfl]}\n", "--params=training.rounds=100000", code=130)
    watcher.join()
    assert statuses(runs(project)) == {"KILLED": 2}
    assert multiprocessing.active_children() == []
    assert not (project / "data/06_models/tiny").exists()


VARIED = """
arms: {a: {algorithm: hfl_dp}, b: {algorithm: m2fdp}}
versions: {v: {}}
grid: {privacy.epsilon: [1.0, 2.0]}
"""
FIGURE = VARIED + "figure: {panels: [{title: P, x: %s}]}\n"
CLAIM = VARIED + "claims: [{claim: C, source: J, paper: so, at_least: 0, of: {%s}, measure: %s}]\n"
SEEDS = "grid: {seed: [0]}\n"


@pytest.mark.parametrize(
    ("lines", "arguments", "parts"),
    [
        ("grid: {training.roundz: [1]}\n", [], ["training.roundz = 1", "valid keys are"]),
        ("grids: {}\n", [], ["study.tiny.grids", "valid keys are"]),
        (SEEDS, ["--params=resume=true"], ["resume = True", "--resume"]),
        (SEEDS, ["--env=mars"], ["--env", "'mars'", "fashion_mnist"]),
        (SEEDS, ["--only=seed=1"], ["--only seed = '1'", "the study's are 0"]),
        (SEEDS, ["--scale=smoke"], ["--scale = 'smoke'", "there are (none)"]),
        (FIGURE % "rounds", [], ["figure.panels.0.x = 'rounds'", "round", "privacy.epsilon"]),
        ("table: [speed]\n", [], ["measure = 'speed'", "accuracy"]),
        (FIGURE % "arm, where: {arm: [a, c]}", [], ["figure.panels.0.where.arm = 'c'", "a, b"]),
        (FIGURE % "arm", [], ["differ in privacy.epsilon", "by `lines: privacy.epsilon`"]),
        (CLAIM % ("arm: a", "accuracy"), [], ["claim 'C', of", "privacy.epsilon"]),
        (CLAIM % ("arm: c", "accuracy"), [], ["of.arm = 'c'", "is none of a, b"]),
        (CLAIM % ("arm: a", "accuracy, versions: [w]"), [], ["versions = 'w'", "is none of v"]),
        # A candidate that follows another arm's choice.
        (SEARCHED.replace("rounds: [3]", "rounds: [-1]"), [], ["training.rounds = -1"]),
        # A sweep's.
        ("", ["--over=privacy.epsilonn=1|2"], ["privacy.epsilonn = 1: unknown key; valid keys"]),
    ],
)
def test_what_cannot_be_run_ends_in_one_line_before_anything_starts(
    project, kedro_study, lines, arguments, parts
):
    result = kedro_study(lines, *arguments, code=2, name="tiny" if lines else "sweep")
    (line,) = result.output.splitlines()
    assert all(part in line for part in parts), line
    assert runs(project) == []
    assert not (project / "data/08_reporting").exists()


@pytest.mark.full
def test_a_sweep_needs_no_file_and_goes_on(project, kedro_study):
    sweep = ["--over=algorithm=hfl_dp|m2fdp", "--params=training.rounds=2,training.batch_size=null"]
    kedro_study("", *sweep, "--over=privacy.epsilon=2", "--seeds=1", code=0, name="sweep")
    wider = kedro_study(
        "", *sweep, "--over=privacy.epsilon=2|4", "--seeds=1", "--resume", code=0, name="sweep"
    )
    assert "2 of 4 cells are finished already" in wider.output
    folder = project / "data/08_reporting/sweep-algorithm-privacy.epsilon"
    assert set(pd.read_csv(folder / "comparison.csv")["privacy.epsilon"]) == {2, 4}
    assert "'--over=privacy.epsilon=2|4' --seeds=1" in (folder / "report.md").read_text()
    assert "sweep-algorithm-privacy.epsilon" in kedro_study_report(code=0).output
