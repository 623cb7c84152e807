"""The pool's work as tasks of a Ray cluster: the same tasks, tries and stream of results."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from m2fdp.errors import InputError
from m2fdp.interruption import deferred
from m2fdp.studies.pool import GRACE_S, Pending

OPTION = "--ray-address"
# Ray itself tries for minutes.
ANSWER_S = 5.0
SIGNALS_WAIT_S = 0.5


@contextmanager
def connected(address: str) -> Iterator[None]:
    """This process as a driver of the cluster at the address.

    Args:
        address: HOST:PORT, or `auto` for a cluster that this machine is a node of.

    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """
    try:
        import ray
    except ImportError:
        raise InputError(OPTION, address, 'needs Ray: pip install "m2fdp[ray]"') from None
    _check_answer(address)
    # Ray takes SIGTERM over, which is ours to handle.
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise InputError(OPTION, address, f"no connection to a Ray cluster: {reason}") from None
    finally:
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        with deferred():
            ray.shutdown()


def run_ray_tasks(
    work: Callable[[Any], Any],
    tasks: Sequence[Any],
    workers: int | None,
    environment: Mapping[str, str],
    on_loss: Callable[[int], None],
) -> Generator[tuple[int, Any], None, None]:
    """What `m2fdp.studies.pool.run_tasks` does, on the connected cluster, on a core a task.

    A task whose worker or node dies is tried once more. Leaving the iterator early, by an
    exception too, cancels all tasks.

    Args:
        workers: how many tasks at a time, at most; None = one a core of the cluster.

    Raises:
        InputError: a node that can't do the work at all.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError

    # Ray would report nothing of a try that it repeats by itself.
    options = {"num_cpus": 1, "max_retries": 0, "runtime_env": {"env_vars": dict(environment)}}
    work_there = ray.remote(**options)(_work_in)
    pending = Pending(len(tasks), on_loss)
    running: dict[Any, int] = {}
    try:
        while pending or running:
            while pending and (workers is None or len(running) < workers):
                task = pending.take()
                running[work_there.remote(Path.cwd(), work, tasks[task])] = task
            done = _first_done(list(running))
            task = running.pop(done)
            try:
                result = ray.get(done)
            except (RayTaskError, RuntimeEnvSetupError) as error:
                cause = str(error).strip().splitlines()[-1]
                address = ray.get_runtime_context().gcs_address
                raise InputError(OPTION, address, f"a node can't do the work: {cause}") from None
            except RayError:
                if pending.lose(task):
                    continue
                result = None
            yield task, result
    finally:
        with deferred():
            _cancel(list(running))


def _check_answer(address: str) -> None:
    """Raises InputError where nothing listens; of a machine without cluster Ray says so at once."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address  # as Ray reads it
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(OPTION, address, "write auto, or HOST:PORT as `ray start` prints it")
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(OPTION, address, f"nothing answers there: {error}") from None


def _work_in(folder: Path, work: Callable[[Any], Any], task: Any) -> Any:
    """On a node, where relative paths shall mean what they mean to the parent."""
    os.chdir(folder)
    return work(task)


def _first_done(references: list[Any]) -> Any:
    import ray

    while True:
        # Ray would turn any signal into Ctrl-C.
        with deferred():
            done, _ = ray.wait(references, timeout=SIGNALS_WAIT_S)
        if done:
            return done[0]


def _cancel(references: list[Any]) -> None:
    """Ctrl-C for the workers of the tasks, and the end of those that are not done in time."""
    import ray

    for force in (False, True):
        for reference in references:
            ray.cancel(reference, force=force)
        if references:
            _, references = ray.wait(references, num_returns=len(references), timeout=GRACE_S)
