"""Work shared with forked processes; no result depends on how many there are.

A forked process has everything its parent has and gives back what it writes into shared memory,
so nothing is sent. Threads would wait for each other between any two operators of torch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from mmap import mmap

import torch
from torch import Tensor

from m2fdp.simulation.forking import fork

# To fork, and to copy the pages that either process writes to, costs a tenth of this.
_WORTH_FORKING_S = 0.1


class Workers:
    """So many processes at a time, this one included.

    The arithmetic of each is meant to run on one thread (`torch.set_num_threads(1)`): small
    products gain little from more, and round alike whatever the number of processes.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._seconds: dict[str, float] = {}

    def share(
        self, kind: str, items: int, work: Callable[[range], None], multiple: int = 1
    ) -> None:
        """Call `work` with ranges that together are range(items), some in other processes.

        Only what `work` writes into shared memory (`shared_tensor`) may be used afterwards.

        Args:
            kind: names the work; whether forking is worth it is known from earlier calls.
            multiple: all ranges start at a multiple of it.
        """
        if self._forks() == 1 or self._seconds.get(kind, 0.0) * items < _WORTH_FORKING_S:
            started = time.perf_counter()
            work(range(items))
            self._seconds[kind] = (time.perf_counter() - started) / max(items, 1)
            return
        whole = -(-items // multiple)
        bounds = [min(whole * i // self.count * multiple, items) for i in range(self.count)]
        own, *others = [range(a, b) for a, b in zip(bounds, [*bounds[1:], items], strict=True)]
        children = {fork(partial(work, part)): part for part in others if part}
        try:
            work(own)
            for process, part in list(children.items()):
                _, status = os.waitpid(process, 0)
                del children[process]
                if status != 0:  # here, for its error or for what a killed process left undone
                    work(part)
        finally:
            for process in children:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)

    def _forks(self) -> int:
        return self.count if sys.platform == "linux" else 1


def shared_tensor(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Zeros (rows, columns) that forked processes write for their parent to read."""
    size = rows * columns * torch.empty((), dtype=dtype).element_size()
    return torch.frombuffer(mmap(-1, max(size, 1)), dtype=dtype, count=rows * columns).view(
        rows, columns
    )


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
