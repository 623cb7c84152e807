"""Worker processes of a study: a pool in which the death of one costs no other its task, and one
cell in a worker, which is an MLflow run around a Kedro session.

Imports are light: a worker imports this module before its number of threads is set.
"""

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from m2fdp.interruption import Interrupted, deferred, interruptible
from m2fdp.processes.tasks import GRACE_S, Pending

PARENT_TAG = "mlflow.parentRunId"
# Figures take longer than all else around a cell's training, and a study draws its own.
_UNDRAWN = {"figures": False}


@dataclass(frozen=True)
class Job:
    """What a worker needs to know about a cell."""

    project: Path
    env: str | None
    tracking_uri: str
    experiment_id: str
    run_name: str
    tags: dict[str, str]
    runtime_params: dict[str, Any]
    log: Path
    pipelines: tuple[str, ...] = ()  # none = the default


def run_cell(job: Job) -> dict[str, str]:
    """Run the cell; everything it prints goes to its log. Returns `run_id` of a finished run, or
    `reason`, one line, why the cell failed."""
    with _output_to(job.log):
        try:
            return {"run_id": _run(job)}
        except (Exception, SystemExit) as error:  # what a pool can't pickle would break it
            with suppress(OSError):  # the log's disk may be what has failed
                traceback.print_exc()
            from m2fdp.pipelines.tracking import reason

            return {"reason": reason(error)}


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Everything that the process prints inside the block, C code too, goes to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    streams = (sys.stdout, sys.stderr)
    former = [os.dup(stream.fileno()) for stream in streams]
    with path.open("w", encoding="utf-8") as log:
        for stream in streams:
            os.dup2(log.fileno(), stream.fileno())
    try:
        yield
    finally:
        for stream, descriptor in zip(streams, former, strict=True):
            with suppress(OSError):  # as above: the log is lost, not the cell
                stream.flush()
            os.dup2(descriptor, stream.fileno())
            os.close(descriptor)


def _run(job: Job) -> str:
    import mlflow
    from kedro.framework.session import KedroSession
    from kedro.framework.startup import bootstrap_project

    from m2fdp.pipelines.tracking import PROCESS_TAG, closing_runs, process_tag

    bootstrap_project(job.project)
    mlflow.set_tracking_uri(job.tracking_uri)
    with closing_runs():
        unfinished = _unfinished_run(job)
        run = mlflow.start_run(
            run_id=unfinished,
            experiment_id=job.experiment_id,
            run_name=job.run_name,
            tags=job.tags | {PROCESS_TAG: process_tag()},
        )
        session = KedroSession.create(
            job.project,
            save_on_close=False,
            env=job.env,
            runtime_params=_UNDRAWN | job.runtime_params | {"resume": unfinished is not None},
        )
        with session:
            session.run(pipeline_names=list(job.pipelines) or None)
    return run.info.run_id


def _unfinished_run(job: Job) -> str | None:
    """The run to go on with: begun by this study, cut off, and kept by a checkpoint."""
    from kedro.framework.project import settings

    from m2fdp.core.errors import InputError
    from m2fdp.given.loading import parse_config
    from m2fdp.pipelines.cells import find_unfinished

    loader = settings.CONFIG_LOADER_CLASS(
        conf_source=str(job.project / settings.CONF_SOURCE),
        env=job.env,
        runtime_params=job.runtime_params,
        **settings.CONFIG_LOADER_ARGS,
    )
    folder = job.project / loader["catalog"]["checkpoints"]["path"]
    try:
        run = find_unfinished(folder, parse_config(loader["parameters"]), job.tracking_uri).run
    except InputError:
        return None
    # A study that is started anew has another parent.
    own = all(run.data.tags.get(key) == job.tags[key] for key in (PARENT_TAG, "cell_hash"))
    return run.info.run_id if own else None


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: int | None = None


def run_tasks(
    work: Callable[[Any], Any],
    tasks: Sequence[Any],
    workers: int,
    environment: Mapping[str, str],
    on_loss: Callable[[int], None],
) -> Generator[tuple[int, Any], None, None]:
    """Do `work(task)` for every task in spawned processes; yield results as they come.

    A worker that dies is replaced and its task is tried once more. Leaving the iterator
    early, by an exception too, stops all workers.

    Args:
        work: a module's function. It must catch its own errors and return plain data.
        environment: variables to set in the workers before `work` imports anything.

    Yields:
        (number of the task, its result; None if its workers died).
    """
    pending = Pending(len(tasks), on_loss)
    pool: list[_Worker] = []
    try:
        while pending or any(worker.task is not None for worker in pool):
            while pending and len(pool) < workers:
                pool.append(_start(work, environment))
            for worker in pool:
                if worker.task is None and pending:
                    worker.task = pending.take()
                    # A worker that has died meanwhile shows below, at the end of its pipe.
                    with suppress(ConnectionError):
                        worker.connection.send(tasks[worker.task])
            busy = {worker.connection: worker for worker in pool if worker.task is not None}
            for connection in wait(busy):
                worker = busy[connection]  # type: ignore[index]  # `wait` takes sockets, too
                task, worker.task = worker.task, None
                assert task is not None
                try:
                    result = worker.connection.recv()
                except (EOFError, ConnectionError):
                    pool.remove(worker)
                    _stop([worker])
                    if pending.lose(task):
                        continue
                    result = None
                yield task, result
    finally:
        with deferred():
            _stop(pool)


def _start(work: Callable[[Any], Any], environment: Mapping[str, str]) -> _Worker:
    context = multiprocessing.get_context("spawn")
    connection, of_worker = context.Pipe()
    process = context.Process(target=_serve, args=(of_worker, work, dict(environment)), daemon=True)
    # Ctrl-C reaches every process of the terminal, but is the parent's to handle: workers inherit
    # that it is blocked. The tracker's start would unblock it, so that comes first.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    of_worker.close()  # so that the worker's death ends the pipe
    return _Worker(process, connection)


def _stop(pool: Sequence[_Worker]) -> None:
    for worker in pool:
        worker.connection.close()  # an idle worker leaves now
        if worker.task is not None:
            worker.process.terminate()
    for worker in pool:
        worker.process.join(GRACE_S)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _serve(
    connection: Connection, work: Callable[[Any], Any], environment: Mapping[str, str]
) -> None:
    """A worker's life: one task after the other until it is stopped."""
    os.environ.update(environment)
    # First registered, last called: all is closed by then, and to tear down what torch and
    # MLflow have loaded would take seconds more.
    atexit.register(os._exit, 0)
    threading.Thread(target=_follow_parent, daemon=True).start()
    # Each is the study's end: it asks for no more, or is gone.
    with suppress(EOFError, ConnectionError, Interrupted), interruptible():
        while True:
            connection.send(work(connection.recv()))


def _follow_parent() -> None:
    """Stop with the parent, even when it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
