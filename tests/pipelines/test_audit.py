"""`kedro run --pipelines=audit` and `attack` through a real Kedro session."""

import pytest
from tests.finished import ATTACKED, RUNS, SMALL, artifacts_of, only_run, report

from m2fdp.core.engine import noise


@pytest.mark.parametrize("mechanism", ["gradient", pytest.param("upload", marks=pytest.mark.full)])
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


def test_a_reconstruction_leaves_pictures_and_numbers(project, kedro_run):
    params = (
        f"{ATTACKED},training.local_steps=1,partition.samples_per_device=1,algorithm=hfl,"
        "attack.method=analytic,attack.observer=servers,topology.trust.ratios=[0.0]"
    )
    result = kedro_run("--pipelines", "attack", "--params", params, code=0)
    for words in ("PSNR", "ε at most", "∞", "A failed attack proves nothing"):
        assert words in result.output
    record, run = report(project, "attack.json"), only_run()
    assert [message["epsilon"] for message in record["messages"]] == ["inf"] * 4
    assert run.data.metrics["attack/psnr"] == record["metrics"]["psnr"] > 60
    assert run.data.tags["attack_infinite"] == "attack/epsilon"
    assert {"attack.json", "attack.png", "privacy_ledger.csv"} <= artifacts_of(run)
    assert not (project / "data/06_models/single/model.pt").exists()
    assert not list((project / "data/07_model_output/single/attack").glob("*"))


def test_membership_leaves_the_ledgers_bound_beside_every_number(finished_run):
    finished = finished_run(*RUNS["membership"])
    assert "A failed attack proves nothing" in finished.output
    record, metrics = report(finished.project, "attack.json"), finished.run.data.metrics
    assert [row["observer"] for row in record["memberships"]] == ["public", "far_devices"]
    for kind in ("public", "far_devices"):
        assert 0.5 < metrics[f"attack/auc_most/{kind}"] < 0.6
        assert metrics[f"attack/epsilon/{kind}"] <= 1.0
    assert 0 < metrics["accuracy"] < 1
    assert "attack.png" in finished.artifacts
