"""What people wait for is measured; how long that is, `python -m benchmarks.waiting` judges."""

from __future__ import annotations

import pytest
from benchmarks.waiting import overheads, refusals, starts


@pytest.mark.full
def test_cells_are_measured_but_for_the_first(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (cell,) = overheads(2)
    assert cell.cpu > 0


@pytest.mark.full
def test_runs_are_measured_in_pairs_but_for_the_first(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    ((imports, run),) = starts(1)
    assert imports.cpu > 0 and run.cpu > 0


@pytest.mark.full
def test_refusals_are_measured_but_for_the_first():
    ((run, study),) = refusals(1)
    assert run.cpu > 0 and study.cpu > 0
