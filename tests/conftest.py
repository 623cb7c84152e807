"""A project folder of the test's own, so that no test touches the repository's data and runs."""

from __future__ import annotations

import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow
import pytest
from click.testing import CliRunner, Result
from hypothesis import settings
from kedro.framework.startup import bootstrap_project

REPOSITORY = Path(__file__).parents[1]
# MLflow hands these on to later sessions and subprocesses; a test must start without them.
MLFLOW_VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_ID", "MLFLOW_RUN_ID")

# On a busy machine an example may take any time; the suite has a limit of its own for each test.
settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")


@pytest.fixture(scope="session", autouse=True)
def heard_interrupts() -> None:
    """Shells start background jobs deaf to Ctrl-C; tests that send it would wait for ever."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with its tables and nothing else; making them takes seconds."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def project(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bootstrapped copy of the project's configuration with its own data/ and mlruns/.

    It is the working directory, and the code is the repository's.
    """
    shutil.copytree(REPOSITORY / "conf", tmp_path / "conf", ignore=shutil.ignore_patterns("local"))
    (tmp_path / "conf" / "local").mkdir()
    for file in ("pyproject.toml", ".telemetry"):
        shutil.copy(REPOSITORY / file, tmp_path)
    for folder in ("src", "data", "mlruns"):
        (tmp_path / folder).mkdir()
    shutil.copy(empty_store, tmp_path / "mlruns")
    monkeypatch.chdir(tmp_path)
    for variable in MLFLOW_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    bootstrap_project(tmp_path)
    return tmp_path


@pytest.fixture
def kedro_run(project: Path) -> Callable[..., Result]:
    """`kedro run` with the given arguments, in this process and in `project`."""
    from m2fdp.cli import run

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(run, arguments)

    return invoke


@pytest.fixture
def small_files() -> Iterator[Callable[[], None]]:
    """A function from which on no file grows beyond two bytes, as on a full disk."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2, former[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, former)
