"""A store of the test's own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest


@pytest.fixture
def store(tmp_path: Path, empty_store: Path) -> Iterator[None]:
    """An empty one, which MLflow looks into."""
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{shutil.copy(empty_store, tmp_path)}")
    yield
    mlflow.set_tracking_uri(before)
