"""Folders in memory, where there are some: nodes wait for the disk at every line. And commands
that are called here leave no handler of signals behind."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from m2fdp.interruption import SIGNALS

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own."""
    in_memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(dir=in_memory) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """What a command sets for its process ends with the test."""
    before = [signal.getsignal(signum) for signum in SIGNALS]
    yield
    for signum, handler in zip(SIGNALS, before, strict=True):
        signal.signal(signum, handler)
