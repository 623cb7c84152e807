"""Forking beside threads, which Python warns of, fenced here with the reason why it is safe.

From version 3.12 on, `os.fork` warns where the process has other threads: a lock that one of them
holds stays locked for ever in the child. A child here calls nothing but torch, on one thread
(`m2fdp.simulation.arithmetic`), and none of the threads that a run has (a progress bar's, the
tracking client's) ever computes with torch, so none can hold a lock that the child needs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

# The warning's own words, so that no other one is silenced.
WARNING = r".*is multi-threaded, use of fork\(\) may lead to deadlocks"


def fork(work: Callable[[], None]) -> int:
    """The number of a new process that does the work and ends, with status 0 if it is done."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", WARNING, DeprecationWarning)
        process = os.fork()
    if process == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return process
