"""Threads that step learners side by side; no result depends on how many there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Workers:
    """So many calls at a time.

    The arithmetic of each call is meant to run on one thread (`torch.set_num_threads(1)`): small
    products gain little from more, and round alike whatever the number of workers.
    """

    count: int
    pool: ThreadPoolExecutor | None

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results of `work` in the order of the items."""
        if self.pool is None or len(items) < 2:
            return [work(item) for item in items]
        return list(self.pool.map(work, items))


def build_workers(count: int) -> Workers:
    """One worker is the caller's own thread."""
    return Workers(count, ThreadPoolExecutor(count) if count > 1 else None)


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
