"""A study's cells as tasks of a Ray cluster: tasks, tries and results as in the local pool."""

import os
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from m2fdp.core.errors import InputError
from m2fdp.interruption import deferred
from m2fdp.processes import connection

ATTEMPTS = 2
# Time that a stopped worker has to close what it writes before it is killed.
GRACE_S = 5.0


class Pending:
    """The numbers of the tasks that nobody works on; a lost worker's task is tried once more."""

    def __init__(self, n_tasks: int, on_loss: Callable[[int], None] = lambda task: None) -> None:
        self._numbers, self._on_loss = deque(range(n_tasks)), on_loss
        self._attempts = [0] * n_tasks

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def take(self) -> int:
        """The next one's number; it counts as tried."""
        task = self._numbers.popleft()
        self._attempts[task] += 1
        return task

    def lose(self, task: int) -> bool:
        """Its worker has died: whether it is pending again."""
        self._on_loss(task)
        retried = self._attempts[task] < ATTEMPTS
        if retried:
            self._numbers.appendleft(task)
        return retried


OPTION, WORKERS = "--ray-address", "execution.workers"


def run_ray_tasks(
    work: Callable[[Any], Any],
    tasks: Sequence[Any],
    workers: int | None,
    environment: Mapping[str, str],
    on_loss: Callable[[int], None],
    cores: int = 1,
) -> Generator[tuple[int, Any], None, None]:
    """What `m2fdp.studies.worker.run_tasks` does, on the connected cluster. Leaving the iterator
    early, by an exception too, cancels all tasks.

    Args:
        workers: how many tasks at a time, at most; None = as many as the cluster has cores for.
        cores: how many each task has: its own, and others that only it may place something on.

    Raises:
        InputError: a node that can't do the work at all, or a cluster too small for a task.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError

    # Ray would report nothing of a try that it repeats by itself.
    options = {"max_retries": 0, "runtime_env": {"env_vars": dict(environment)}}
    work_there = ray.remote(**options)(_work_in)
    pending = Pending(len(tasks), on_loss)
    running: dict[Any, tuple[int, connection.Reservation]] = {}
    try:
        while pending or running:
            there = connection.cores_of_cluster()
            room = min(workers or len(tasks), there // cores)
            if not (room or running):
                problem = f"with a core for the run itself is more than the cluster's {there}"
                raise InputError(WORKERS, cores - 1, problem)
            while pending and len(running) < room:
                task, reservation = pending.take(), connection.Reservation(cores)
                placed = work_there.options(**connection.place_in(reservation.group, 0))
                running[placed.remote(Path.cwd(), work, tasks[task])] = task, reservation
            (done,) = connection.wait_for(list(running))
            task, reservation = running.pop(done)
            try:
                result = ray.get(done)
            except (RayTaskError, RuntimeEnvSetupError) as error:
                address, cause = ray.get_runtime_context().gcs_address, connection.cause_of(error)
                raise InputError(OPTION, address, f"a node can't do the work: {cause}") from None
            except RayError:
                if pending.lose(task):
                    continue
                result = None
            finally:
                reservation.end()
            yield task, result
    finally:
        with deferred():
            _cancel(list(running))
            for _, reservation in running.values():
                reservation.end()


def _work_in(folder: Path, work: Callable[[Any], Any], task: Any) -> Any:
    """On a node, where relative paths shall mean what they mean to the parent."""
    os.chdir(folder)
    return work(task)


def _cancel(references: list[Any]) -> None:
    """Ctrl-C for the workers of the tasks, and the end of those that are not done in time."""
    import ray

    for force in (False, True):
        for reference in references:
            ray.cancel(reference, force=force)
        if references:
            _, references = ray.wait(references, num_returns=len(references), timeout=GRACE_S)
