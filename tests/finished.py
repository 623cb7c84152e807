"""What finished runs have left: their files, and what MLflow keeps of them."""

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlflow
import pandas as pd
from click.testing import CliRunner
from filelock import FileLock
from kedro.framework.startup import bootstrap_project
from mlflow import MlflowClient
from mlflow.entities import Run

REPOSITORY = Path(__file__).parents[1]
# MLflow hands these on to later sessions and subprocesses; a test must start without them.
MLFLOW_VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_ID", "MLFLOW_RUN_ID")


@dataclass(frozen=True)
class FinishedRun:
    """A `kedro run` in a project of its own, which many tests read and none changes.

    Attributes:
        project: the project's folder.
        exit_code: 0.
        output: all that the terminal has shown.
        records: logger's name, level and text of each line that was logged.
    """

    project: Path
    exit_code: int
    output: str
    records: list[list[str]]

    @property
    def store(self) -> str:
        return f"sqlite:///{self.project}/mlruns/mlflow.db"

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(self.store)

    @cached_property
    def said(self) -> str:
        """The output without line breaks."""
        return " ".join(self.output.split())

    @cached_property
    def run(self) -> Run:
        (run,) = self.client.search_runs(
            [experiment.experiment_id for experiment in self.client.search_experiments()]
        )
        return run

    def copy_data(self, project: Path) -> None:
        """Into a project of the test's own, as if a run before had left them there."""
        shutil.copytree(self.project / "data", project / "data", dirs_exist_ok=True)

    @cached_property
    def artifacts(self) -> set[str]:
        return artifacts_of(self.run, self.client)

    @cached_property
    def histories(self) -> dict[str, list[tuple[int, float]]]:
        return histories(self.run, self.client)

    @cached_property
    def results(self) -> dict[str, Any]:
        return results(self.project, "single", self.run, self.client)


Finished = Callable[..., FinishedRun]


@dataclass
class FinishedRuns:
    """All finished runs of a test session, in one folder for all its workers.

    Attributes:
        folder: where the projects are.
        empty_store: an MLflow database without runs.
        known: the runs that this worker has read.
        files: size and time of all that they had left when it read them first.
    """

    folder: Path
    empty_store: Path
    known: dict[tuple[str, ...], FinishedRun] = field(default_factory=dict)
    files: dict[Path, dict[Path, tuple[int, int]]] = field(default_factory=dict)

    def get(self, *arguments: str) -> FinishedRun:
        """The run of `kedro run` with these arguments, made by the first who asks."""
        if arguments not in self.known:
            name = hashlib.sha256("\n".join(arguments).encode()).hexdigest()[:12]
            project, end = self.folder / f"run-{name}", self.folder / f"run-{name}.json"
            with FileLock(self.folder / f"run-{name}.lock"):
                if not end.exists():
                    make_project(project, self.empty_store)
                    made = json.dumps(_make_run(project, arguments))
                    end.write_text(made, encoding="utf-8")
            self.known[arguments] = FinishedRun(
                project, **json.loads(end.read_text(encoding="utf-8"))
            )
            self.files[project] = _files(project)
        run = self.known[arguments]
        assert run.exit_code == 0, run.output
        return run

    def check_unchanged(self) -> None:
        for project, files in self.files.items():
            assert _files(project) == files, "a test has changed a run that others read"


def make_project(folder: Path, empty_store: Path | None = None) -> None:
    """Copy the project's configuration, with an own data/ and mlruns/; the code is not copied."""
    shutil.copytree(REPOSITORY / "conf", folder / "conf", ignore=shutil.ignore_patterns("local"))
    (folder / "conf" / "local").mkdir()
    for file in ("pyproject.toml", ".telemetry"):
        shutil.copy(REPOSITORY / file, folder)
    for name in ("src", "data", "mlruns"):
        (folder / name).mkdir()
    if empty_store is not None:
        shutil.copy(empty_store, folder / "mlruns")


def _make_run(project: Path, arguments: tuple[str, ...]) -> dict[str, Any]:
    """Of what a `FinishedRun` holds, all but the project."""
    from m2fdp.cli import run

    log, root = BufferingHandler(capacity=100_000), logging.getLogger()
    with contextlib.chdir(project), patch.dict(os.environ):
        for variable in MLFLOW_VARIABLES:
            os.environ.pop(variable, None)
        bootstrap_project(project)
        root.addHandler(log)
        try:
            result = CliRunner().invoke(run, arguments)
        finally:
            root.removeHandler(log)
    records = [[line.name, line.levelname, line.getMessage()] for line in log.buffer]
    return {"exit_code": result.exit_code, "output": result.output, "records": records}


def _files(project: Path) -> dict[Path, tuple[int, int]]:
    stats = {path: path.stat() for path in (project / "data").rglob("*")}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


# Long enough to be no part of another number: what tells of the seed is found by it.
SEED = 982451653
SMALL = f"topology.fanouts=4|3,training.rounds=3,training.local_steps=2,seed={SEED}"
# Sibling models leave after every step.
UPLOAD = f"{SMALL},training.local_aggregation.1=1,privacy.mechanism=upload"
CONTROLLED = (
    "control.enabled=true,topology.fanouts=4|3,training.rounds=12,training.batch_size=16,threads=1,"
    "control.gap=papers,control.tau=20,control.max_local_steps=6,training.evaluate_every=2,"
    f"control.step_size_factor=20,seed={SEED}"
)
ATTACKED = f"topology.fanouts=2|2,partition.scheme=iid,training.rounds=3,seed={SEED}"
# The arguments of runs that several modules read.
RUNS = {
    "training": ("--params", f"{SMALL},training.checkpoint_every=1"),
    "upload": ("--params", UPLOAD),
    "features": (
        "--params",
        f"{SMALL},features.map=scattering,features.dimension=30,training.accumulated_noise=1.0,"
        "training.learning_rate=700",
    ),
    "privacy": ("--pipelines=privacy", "--params", SMALL),
    "audit": ("--pipelines=audit", "--params", f"{SMALL},audit.repetitions=100"),
    "neighbours": ("--pipelines=audit", "--params", f"{SMALL},audit.method=neighbours"),
    "inversion": (
        "--pipelines=attack",
        "--params",
        f"{SMALL},topology.trust.ratios=[0.0],attack.observer=servers,attack.iterations=20",
    ),
    "membership": (
        "--pipelines=attack",
        "--params",
        f"{ATTACKED},training.local_steps=1,attack.method=lira,attack.shadows=16,"
        "attack.targets=40,partition.samples_per_device=20,privacy.epsilon=1.0",
    ),
    "bound": (
        "--pipelines=bound",
        "--params",
        f"{SMALL},training.rounds=4,privacy.mechanism=upload,privacy.calibration=paper",
    ),
    "tiers": ("--params", f"{SMALL},algorithm=m2fdp_tiers,model.name=cnn12,model.channels=2|3|4"),
    "control": ("--params", f"{CONTROLLED},control.smoothness=estimated"),
    "zones": (
        "--pipelines=privacy",
        "--params",
        f"{SMALL},algorithm=hfl_dp,topology.super_nodes.kind=elected,topology.fanouts=4|4",
    ),
}


def all_runs() -> list[Run]:
    """Of the store of the test's last run, the newest first."""
    return mlflow.search_runs(search_all_experiments=True, output_format="list")


def only_run() -> Run:
    (run,) = all_runs()
    return run


def run_of(cell: str) -> Run:
    """The only run of a cell."""
    (run,) = [run for run in all_runs() if run.data.tags["cell"] == cell]
    return run


def artifacts_of(run: Run, client: MlflowClient | None = None) -> set[str]:
    """Names of the files that MLflow keeps of a run."""
    return {file.path for file in (client or MlflowClient()).list_artifacts(run.info.run_id)}


def histories(run: Run, client: MlflowClient | None = None) -> dict[str, list[tuple[int, float]]]:
    """Of each metric the rounds and values; how long they took is left out."""
    client = client or MlflowClient()
    return {
        name: sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, name))
        for name in run.data.metrics
        if name != "wall_s"
    }


def results(
    project: Path, cell: str, run: Run, client: MlflowClient | None = None
) -> dict[str, Any]:
    """All of a cell's finished run that must not depend on interruptions: metrics of all rounds,
    and what its files hold."""
    assert run.info.status == "FINISHED"
    model = (project / f"data/06_models/{cell}/model.pt").read_bytes()
    logged = project / f"mlruns/artifacts/{run.info.run_id}/artifacts/model.pt"
    assert logged.read_bytes() == model
    files = [
        f"07_model_output/{cell}/round_metrics.csv",
        f"07_model_output/{cell}/confusion_matrix.csv",
        f"08_reporting/{cell}/run_summary.json",
        f"08_reporting/{cell}/privacy_ledger.csv",
    ]
    contents = {Path(file).name: (project / "data" / file).read_bytes() for file in files}
    return histories(run, client) | contents | {"model": model}


def report(project: Path, name: str, cell: str = "single") -> Any:
    """A file of a cell's reports: a table, or what a JSON file holds."""
    return _content(project / "data/08_reporting" / cell / name)


def output(project: Path, name: str, cell: str = "single") -> Any:
    """A table that training or evaluation has left."""
    return _content(project / "data/07_model_output" / cell / name)


def manifest_of(project: Path, cell: str = "single") -> pd.DataFrame:
    return _content(project / "data/05_model_input" / cell / "manifest.csv")


def _content(path: Path) -> Any:
    return (
        json.loads(path.read_text(encoding="utf-8"))
        if path.suffix == ".json"
        else pd.read_csv(path)
    )
