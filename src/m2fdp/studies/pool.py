"""A pool of worker processes in which the death of one costs no other worker its task."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from m2fdp.core.interruption import Interrupted, deferred, interruptible
from m2fdp.processes.pending import GRACE_S, Pending


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
        workers: how many processes, at most.
        environment: variables to set in the workers before `work` imports anything.
        on_loss: a function of the number of a task whose worker has died.

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
            busy: dict[Any, tuple[_Worker, int]] = {
                worker.connection: (worker, worker.task)
                for worker in pool
                if worker.task is not None
            }
            for connection in wait(list(busy)):
                worker, task = busy[connection]
                worker.task = None
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
