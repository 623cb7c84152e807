"""Work shared with forked processes; no result depends on how many there are.

The processes give back what they write into shared memory, so nothing large is sent. Threads
would wait for each other between any two operators of torch.
"""

import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.process import Work, shared_tensor
from m2fdp.processes.pool import Pool

# What takes less is not worth a message to another process and back, let alone a fork.
_WORTH_SHARING_S = 0.01
# After so many calls the slower way is tried again: what else the machine does may have changed.
_TRY_AGAIN = 20
_REMEMBERED = 3


class Workers:
    """So many processes at a time, this one included.

    The arithmetic of each is meant to run on one thread (`torch.set_num_threads(1)`): small
    products gain little from more, and round alike whatever the number of processes.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count if sys.platform == "linux" else 1
        self._pool: Pool | None = None
        self._ways: dict[str, _Ways] = {}
        self._rooms: dict[str, Tensor] = {}

    def share(
        self,
        kind: str,
        costs: np.ndarray,
        work: Work,
        multiple: int = 1,
        fixed: Sequence[object] = (),
    ) -> None:
        """See `m2fdp.core.engine.process.Workers`.

        Only what `work` writes into shared memory may be used afterwards. `work` can be pickled
        once `fixed` is left out, which processes have from when they are forked. Whether others are
        worth it is known from earlier calls: what is faster is done, and measured again.
        """
        ways, total = self._ways.setdefault(kind, _Ways()), float(costs.sum())
        if self.count == 1 or not len(costs) or not ways.sharing(total):
            started = time.perf_counter()
            work(range(len(costs)))
            ways.took(False, time.perf_counter() - started, total)
            return
        first, *others = even_ranges(costs, self.count, multiple)
        ready = self._forked(fixed)
        started = time.perf_counter()
        try:
            self._share(first, others, work)
        except BaseException:
            self.end()
            raise
        if ready:
            ways.took(True, time.perf_counter() - started, total)

    def room(self, name: str, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Shared memory (rows, columns), the same whenever it is asked for by its name and size."""
        room = self._rooms.get(name)
        if room is None or room.shape != (rows, columns) or room.dtype != dtype:
            room = self._rooms[name] = shared_tensor(rows, columns, dtype)
        return room

    def end(self) -> None:
        """End the other processes; whoever shares work again has new ones."""
        if self._pool is not None:
            self._pool.end()
            self._pool = None

    def _forked(self, fixed: Sequence[object]) -> bool:
        """Whether there were processes that have all that is fixed; else, there are now."""
        had = () if self._pool is None else self._pool.fixed
        new = {id(value): value for value in fixed}.keys() - {id(value) for value in had}
        if self._pool is not None and not new:
            return True
        self.end()
        added = [value for value in fixed if id(value) in new]
        self._pool = Pool(self.count - 1, (*had, *added))
        return False

    def _share(self, first: range, others: Sequence[range], work: Work) -> None:
        pool = self._pool
        if pool is None:
            raise RuntimeError("processes are forked before they are given work")
        pool.start(work, others)
        work(first)
        lost = [part for number, part in enumerate(others) if not pool.finished(number)]
        if lost:
            self.end()
        for part in lost:  # here, for its error or for what a killed process left undone
            work(part)


@dataclass
class _Ways:
    """How long a kind of work took, in seconds for a unit of cost: alone, and shared.

    The least of the last few calls counts, for whatever disturbs one makes it longer.
    """

    calls: int = 0
    unshared: deque[float] = field(default_factory=partial(deque, maxlen=_REMEMBERED))
    shared: deque[float] = field(default_factory=partial(deque, maxlen=_REMEMBERED))

    def sharing(self, cost: float) -> bool:
        """Whether the next call, of some cost, is shared."""
        self.calls += 1
        unshared, shared = min(self.unshared, default=0.0), min(self.shared, default=0.0)
        if unshared * cost < _WORTH_SHARING_S:
            return False
        if not unshared or not shared:
            return True
        # The first call of all is slower than those that follow.
        is_retried = self.calls == _REMEMBERED + 1 or self.calls % _TRY_AGAIN == 0
        return (shared < unshared) != is_retried

    def took(self, shared: bool, seconds: float, cost: float) -> None:
        """What a call took."""
        (self.shared if shared else self.unshared).append(seconds / max(cost, 1.0))


def even_ranges(costs: np.ndarray, count: int, multiple: int = 1) -> list[range]:
    """At most so many ranges of about the same cost, one after the other, none of them empty.

    Args:
        costs: float64 (n,), of each item, in any unit.
        multiple: all ranges start at a multiple of it.
    """
    items, spent = len(costs), np.concatenate([[0.0], np.cumsum(costs)])
    targets = spent[-1] * np.arange(count) / count
    nearest = np.searchsorted((spent[1:] + spent[:-1]) / 2, targets)
    starts = np.round(nearest / multiple).astype(int) * multiple
    starts = np.minimum(starts, items).tolist()
    return [range(a, b) for a, b in zip(starts, [*starts[1:], items], strict=True) if a < b]
