"""Where MLflow keeps the runs, which process owns each, and how each of them ends."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
import psutil
from click.exceptions import Exit
from mlflow import MlflowClient
from mlflow.entities import Run, RunStatus

from m2fdp.interruption import deferred, interruptible
from m2fdp.pipelines.causes import first_line, is_outage, reason

PROCESS_TAG = "process"
END_TAG = "ended"  # why a run has no result
# The kernel's boot time, which start times count from, may be corrected while we run.
CLOCK_CORRECTION_S = 5.0
_LONGEST_REASON = 2_000  # characters

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


def connect(project: Path) -> str:
    """Point MLflow at the project's store; returns the id of the experiment that keeps the runs,
    which is made where there is none yet."""
    # Kedro sets up logs and displays when it is imported, which a notebook that only looks for the
    # store should be spared.
    from kedro.framework.session import KedroSession

    session = KedroSession.create(project, save_on_close=False)
    with session:
        context = session.load_context()
    name = context.mlflow.tracking.experiment.name  # type: ignore[attr-defined]  # kedro-mlflow's
    return MlflowClient().get_experiment_by_name(name).experiment_id


def process_tag() -> str:
    """`host:pid:start time` of this process: who must live for its runs to be running.

    The host is a digest of its name: runs are shown to others, and tell nothing of the machine.
    """
    process = psutil.Process()
    return f"{_host()}:{process.pid}:{process.create_time():.2f}"


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]


def tell_end(run: Run, why: str) -> None:
    """Write on the page of a run that ends before its time why it does, instead of a card."""
    line = " ".join(why.replace(f"{Path.cwd()}/", "").split())[:_LONGEST_REASON]
    client = MlflowClient()
    client.set_tag(run.info.run_id, END_TAG, line)
    client.set_tag(run.info.run_id, "mlflow.note.content", f"**Ended before its time:** {line}")


def forget_end(run: Run) -> None:
    """A run that goes on has not ended."""
    if END_TAG in run.data.tags:
        MlflowClient().delete_tag(run.info.run_id, END_TAG)


def held_by_another_process(run: Run) -> bool:
    """Whether a living process of this host, other than this one, has the run open."""
    host, _, process = run.data.tags.get(PROCESS_TAG, "").partition(":")
    return (
        run.info.status == "RUNNING"
        and host == _host()
        and process.split(":")[0] != str(os.getpid())
        and _lives(run.data.tags[PROCESS_TAG])
    )


def close_stale_runs() -> list[str]:
    """Mark as KILLED the running runs of this host whose process is gone; returns their ids."""
    stale = [
        run
        for run in mlflow.search_runs(
            search_all_experiments=True,
            filter_string=f"attributes.status = 'RUNNING' and "
            f"tags.{PROCESS_TAG} LIKE '{_host()}:%'",
            output_format="list",
        )
        if not _lives(run.data.tags[PROCESS_TAG])
    ]
    for run in stale:
        tell_end(run, "its process was killed, or the machine was switched off")
        MlflowClient().set_terminated(run.info.run_id, RunStatus.to_string(RunStatus.KILLED))
    return [run.info.run_id for run in stale]


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
    status, why = RunStatus.FAILED, ""
    with interruptible():  # until the last run is closed
        try:
            with interruptible():
                yield
            status = RunStatus.FINISHED
        except KeyboardInterrupt as interruption:
            status, why = RunStatus.KILLED, f"stopped by {first_line(interruption)}"
            raise
        except Exit:  # of a command that has said why
            raise
        except Exception as error:
            why = reason(error)
            raise
        finally:
            with deferred():
                while run := mlflow.active_run():
                    with outages_tolerated(run):
                        if why:
                            tell_end(run, why)
                        mlflow.end_run(RunStatus.to_string(status))
