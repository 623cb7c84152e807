"""`kedro run --pipelines=audit` through a real Kedro session."""

import pytest
from tests.finished import RUNS, SMALL, report

from m2fdp.core.engine import noise


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_an_audit_leaves_bounds_figure_and_metrics(finished_run, mechanism):
    *pipeline, params = RUNS["audit"]
    params += ",privacy.mechanism=upload" if mechanism == "upload" else ""
    finished = finished_run(*pipeline, params)
    for words in ("at least", "at most", "nominal", "none can pass"):
        assert words in finished.output
    assert "Privacy ledger" not in finished.output  # the audit's own table is what it ends with
    observers = report(finished.project, "audit.json")["observers"]
    assert [bounds["epsilon_nominal"] for bounds in observers] == [4, 4]
    metrics = finished.run.data.metrics
    assert metrics["audit_epsilon_lower"] == max(bounds["epsilon_lower"] for bounds in observers)
    assert metrics["audit_epsilon_upper"] == max(bounds["epsilon_upper"] for bounds in observers)
    assert metrics["audit_epsilon_upper"] <= 4
    assert {"audit.json", "audit_bounds.png", "privacy_ledger.csv"} <= finished.artifacts
    assert not (finished.project / "data/06_models/single/model.pt").exists()


def test_fewer_rounds(kedro_run):
    few = f"{SMALL},audit.repetitions=100,audit.rounds=1"
    result = kedro_run("--pipelines", "audit", "--params", few, code=0)
    assert "Audit at T = 1" in result.output


def test_neighbours_leave_a_line_an_observer_and_end_a_run_that_does_not_hold(
    finished_run, kedro_run, monkeypatch
):
    few = f"{SMALL},audit.method=neighbours"
    finished = finished_run("--pipelines=audit", "--params", few)
    assert "largest shift found" in finished.output
    observers = report(finished.project, "audit.json")["observers"]
    assert all(row["held"] and row["found"] <= row["allowed"] for row in observers)
    assert finished.run.data.metrics["audit_epsilon_upper"] <= 4
    assert {"audit.json", "audit_bounds.png"} <= finished.artifacts
    monkeypatch.setattr(noise.RoundNoise, "add", lambda *given: None)
    result = kedro_run("--pipelines", "audit", "--params", few, code=2)
    assert "audit.method = 'neighbours': finds a line of the ledger" in result.output
