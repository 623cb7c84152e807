"""Folders in memory, where there are some: nodes wait for the disk at every line."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own."""
    in_memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(dir=in_memory) as folder:
        yield Path(folder)
