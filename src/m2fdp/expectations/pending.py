"""Verdicts that are waited for later than they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from m2fdp.expectations.process import Checker

# What a process has loaded and learnt serves all its runs.
CHECKER = Checker()
_pending: list[Callable[[], None]] | None = None


@contextmanager
def beside() -> Iterator[None]:
    """Inside the block work goes on while a split is checked, up to the next `settle`.

    What nobody has settled at the end of the block is forgotten.
    """
    global _pending  # as MLflow's active run, it is a matter of the process
    _pending = []
    try:
        yield
    finally:
        _pending = None


def conclude(wait: Callable[[], None]) -> None:
    """Call it now, or at the next `settle` of a block of `beside`.

    Args:
        wait: it waits for a verdict, and raises where that is a refusal.
    """
    if _pending is None:
        wait()
    else:
        _pending.append(wait)


def settle() -> None:
    """Wait for the verdicts that are due, before anything is written that rests on them.

    Raises:
        Exception: a refusal; another call raises it again.
    """
    while _pending:
        _pending[0]()
        del _pending[0]
