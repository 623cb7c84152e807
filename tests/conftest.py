"""Project folders for the tests, none of which touches the repository's data and runs."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import mlflow
import pytest
from click.testing import CliRunner, Result
from hypothesis import settings
from kedro.framework.startup import bootstrap_project
from tests.finished import MLFLOW_VARIABLES, Finished, FinishedRuns, make_project

from m2fdp.core.metrics import OWN
from m2fdp.interruption import SIGNALS

# On a busy machine an example may take any time; the suite has a limit of its own for each test.
settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")


@pytest.fixture(autouse=True)
def no_metrics_of_other_tests():
    """A process knows users' metrics from when they are first named."""
    yield
    OWN.clear()


@pytest.fixture(scope="session", autouse=True)
def heard_interrupts() -> None:
    """Shells start background jobs deaf to Ctrl-C; tests that send it would wait for ever."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """What a command sets for its process ends with the test."""
    before = [signal.getsignal(signum) for signum in SIGNALS]
    yield
    for signum, handler in zip(SIGNALS, before, strict=True):
        signal.signal(signum, handler)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with its tables and nothing else; making them takes seconds."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def project(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bootstrapped project of the test's own, which is the working directory."""
    make_project(tmp_path, empty_store)
    monkeypatch.chdir(tmp_path)
    for variable in MLFLOW_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    bootstrap_project(tmp_path)
    return tmp_path


@pytest.fixture
def kedro_run(project: Path) -> Callable[..., Result]:
    """`kedro run` with the given arguments, in this process and in `project`; where an exit code is
    given, it must end with that."""
    from m2fdp.cli import run

    def invoke(*arguments: str, code: int | None = None) -> Result:
        result = CliRunner().invoke(run, arguments)
        assert code in (None, result.exit_code), result.output
        return result

    return invoke


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Finished]:
    """A function that gives the run of `kedro run` with the given arguments, which is made once
    for all tests and workers, and which no test changes."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    runs = FinishedRuns(folder, empty_store)
    yield runs.get
    runs.check_unchanged()


@pytest.fixture
def small_files() -> Callable[[], AbstractContextManager[None]]:
    """Blocks in which no file grows beyond two bytes, as on a full disk: pytest's own may again
    as soon as they end."""

    @contextmanager
    def limited() -> Iterator[None]:
        former = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2, former[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, former)

    return limited


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[str]:
    """The address of a Ray cluster on this machine: two nodes, a worker each."""
    pytest.importorskip("ray", reason="Ray is an extra: requirements-ray.lock")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80_000_000}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args=node)
        cluster.add_node(**node)
    yield cluster.address
    cluster.shutdown()
