"""Where MLflow keeps the runs, which process owns each, and how each of them ends."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
import psutil
from mlflow import MlflowClient
from mlflow.entities import Run, RunStatus

from m2fdp.interruption import deferred, interruptible
from m2fdp.pipelines.causes import is_outage

PROCESS_TAG = "process"
# The kernel's boot time, which start times count from, may be corrected while we run.
CLOCK_CORRECTION_S = 5.0

logger = logging.getLogger(__name__)


def tracking_uri(project: Path) -> str:
    """MLflow's store: `MLFLOW_TRACKING_URI`, else the SQLite file of the project."""
    return os.environ.get("MLFLOW_TRACKING_URI") or _project_store(project)


def artifact_location(project: Path) -> str | None:
    """The folder of the artifacts, or None where a store of another place decides."""
    if tracking_uri(project) != _project_store(project):
        return None
    return (project / "mlruns" / "artifacts").as_uri()


def _project_store(project: Path) -> str:
    return f"sqlite:///{project.as_posix()}/mlruns/mlflow.db"


def process_tag() -> str:
    """`host:pid:start time` of this process: who must live for its runs to be running."""
    process = psutil.Process()
    return f"{socket.gethostname()}:{process.pid}:{process.create_time():.2f}"


def held_by_another_process(run: Run) -> bool:
    """Whether a living process of this host, other than this one, has the run open."""
    host, _, process = run.data.tags.get(PROCESS_TAG, "").partition(":")
    return (
        run.info.status == "RUNNING"
        and host == socket.gethostname()
        and process.split(":")[0] != str(os.getpid())
        and _lives(run.data.tags[PROCESS_TAG])
    )


def close_stale_runs() -> list[str]:
    """Mark as KILLED the running runs of this host whose process is gone; returns their ids."""
    stale = [
        run.info.run_id
        for run in mlflow.search_runs(
            search_all_experiments=True,
            filter_string=f"attributes.status = 'RUNNING' and "
            f"tags.{PROCESS_TAG} LIKE '{socket.gethostname()}:%'",
            output_format="list",
        )
        if not _lives(run.data.tags[PROCESS_TAG])
    ]
    for run_id in stale:
        MlflowClient().set_terminated(run_id, RunStatus.to_string(RunStatus.KILLED))
    return stale


def _lives(tag: str) -> bool:
    _, pid, started = tag.rsplit(":", 2)
    try:
        process = psutil.Process(int(pid))
        return (
            abs(process.create_time() - float(started)) < CLOCK_CORRECTION_S
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False


@contextmanager
def outages_tolerated(run: Run) -> Iterator[None]:
    """A store that fails as the run ends is no reason to fail too: a later run closes this one."""
    try:
        yield
    except Exception as error:
        if not is_outage(error):
            raise
        logger.warning(
            "MLflow at %s does not know that run %s has ended; the next run there tells it.",
            mlflow.get_tracking_uri(),
            run.info.run_name,
        )


@contextmanager
def closing_runs() -> Iterator[None]:
    """No MLflow run that is active in this thread outlives the block as RUNNING.

    It ends as FINISHED with the block, as FAILED by an error, and as KILLED by Ctrl-C or
    SIGTERM, which raise `Interrupted` inside the block.
    """
    status = RunStatus.FAILED
    with interruptible():  # until the last run is closed
        try:
            with interruptible():
                yield
            status = RunStatus.FINISHED
        except KeyboardInterrupt:
            status = RunStatus.KILLED
            raise
        finally:
            with deferred():
                while run := mlflow.active_run():
                    with outages_tolerated(run):
                        mlflow.end_run(RunStatus.to_string(status))
