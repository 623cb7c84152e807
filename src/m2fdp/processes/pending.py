"""Which of some tasks nobody works on, and how often a lost one is tried again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

ATTEMPTS = 2
# Time that a stopped worker has to close what it writes before it is killed.
GRACE_S = 5.0


class Pending:
    """The numbers of the tasks that nobody works on; one whose worker has died is tried once more.

    Args:
        on_loss: a function of the number of a task whose worker has died.
    """

    def __init__(self, n_tasks: int, on_loss: Callable[[int], None]) -> None:
        self._numbers = deque(range(n_tasks))
        self._attempts = [0] * n_tasks
        self._on_loss = on_loss

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
