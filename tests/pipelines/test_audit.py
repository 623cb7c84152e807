"""`kedro run --pipelines=audit` through a real Kedro session."""

import json

import mlflow
import pytest

SMALL = "topology.fanouts=2|3,training.rounds=3,training.local_steps=2,audit.repetitions=100"


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_an_audit_leaves_bounds_figure_and_metrics(project, kedro_run, mechanism):
    result = kedro_run("--pipelines", "audit", "--params", f"{SMALL},privacy.mechanism={mechanism}")
    assert result.exit_code == 0, result.output
    for words in ("at least", "at most", "nominal", "none can pass"):
        assert words in result.output
    assert "Privacy ledger" not in result.output  # the audit's own table is what it ends with
    reporting = project / "data/08_reporting/single"
    observers = json.loads((reporting / "audit.json").read_text())["observers"]
    assert [found["epsilon_nominal"] for found in observers] == [4, 4]
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    metrics = run.data.metrics
    assert metrics["audit_epsilon_lower"] == max(found["epsilon_lower"] for found in observers)
    assert metrics["audit_epsilon_upper"] == max(found["epsilon_upper"] for found in observers)
    assert metrics["audit_epsilon_upper"] <= 4
    artifacts = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)}
    assert {"audit.json", "audit_bounds.png", "privacy_ledger.csv"} <= artifacts
    assert not (project / "data/06_models/single/model.pt").exists()


def test_fewer_rounds_and_no_privacy(project, kedro_run):
    result = kedro_run("--pipelines", "audit", "--params", f"{SMALL},audit.rounds=1")
    assert result.exit_code == 0, result.output
    assert "Audit at T = 1" in result.output
    result = kedro_run("--pipelines", "audit", "--params", f"{SMALL},algorithm=hfl")
    assert result.exit_code == 2
    assert "no bound to audit" in result.output.splitlines()[-1]
