"""Zones that elect their super-nodes, in whole runs through real sessions."""

import json

import mlflow
import pandas as pd
import pytest

from m2fdp.config import ResourcesConfig
from m2fdp.costs.resources import link_cost

# Two zones of four digits' devices each, whose sums only are ever read.
SUMS = (
    "algorithm=hfl_dp,topology.fanouts=2|4,topology.super_nodes.kind=elected,threads=1,"
    "secure_aggregation.layers=[2],secure_aggregation.noise=shared,"
    "threat.distrusted=servers|cloud|super_nodes,"
    "training.rounds=6,training.local_steps=1,training.local_aggregation=null"
)


def reported(project, name):
    return project / "data/08_reporting/single" / name


def last_run():
    return mlflow.search_runs(search_all_experiments=True, output_format="list")[0]


def test_a_run_with_elections_and_secure_sums(project, kedro_run):
    result = kedro_run("--params", SUMS)
    assert result.exit_code == 0, result.output
    run = last_run()
    summary = json.loads(reported(project, "privacy_summary.json").read_text())
    assert summary["epsilon_verified"] <= 4 and summary["guarantee"] == "verified"
    assert "super_nodes" in summary["distrusted"]
    assert any("elections are uniform" in line for line in summary["assumptions"])

    table = pd.read_csv(reported(project, "elections.csv"))
    assert list(table) == [
        "zone",
        "device",
        "present",
        "served",
        "under_one_other",
        "under_coalition",
    ]
    assert table.groupby("zone")["served"].sum().tolist() == [6, 6]
    assert (table["present"] == 6).all()
    metrics = run.data.metrics
    assert metrics["elections/most_served"] == table["served"].max()
    assert metrics["elections/most_under_one_other"] == table["under_one_other"].max()
    assert summary["elections"]["most_under_coalition"] == table["under_coalition"].max()
    artifacts = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)}
    assert "elections.csv" in artifacts

    ledger = pd.read_csv(reported(project, "privacy_ledger.csv"))
    lines = ledger[ledger["kind"] == "super_nodes"]
    assert len(lines) and lines["distrusted"].all()
    assert lines["assumption"].str.contains("of 6 rounds").all()
    assert lines["epsilon"].max() == pytest.approx(summary["epsilon_verified"])

    rounds = pd.read_csv(project / "data/07_model_output/single/round_metrics.csv")
    # What elections and hidden sums add to 640 words a device and a server.
    resources = ResourcesConfig()
    device = link_cost(2, 32 * 640 + 8 * (64 + 86 * 3 + 37 * 4) + 2 * 256 * 3, resources)
    server = link_cost(1, 32 * 640, resources)
    joules = 8 * 1e-3 + 8 * device.energy_j + 2 * server.energy_j
    assert rounds["energy_j"].iloc[-1] == pytest.approx(6 * joules)


def test_only_elections_leave_a_table(project, kedro_run):
    elected = SUMS.replace("threat.distrusted=servers|cloud|super_nodes,", "")
    result = kedro_run("--pipelines", "privacy", "--params", elected)
    assert result.exit_code == 0, result.output
    assert reported(project, "elections.csv").is_file()
    fixed = elected.replace("elected", "fixed")
    result = kedro_run("--pipelines", "privacy", "--params", fixed)
    assert result.exit_code == 0, result.output
    assert not reported(project, "elections.csv").exists()
    run = last_run()
    artifacts = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)}
    assert "privacy_ledger.csv" in artifacts and "elections.csv" not in artifacts
    assert not [name for name in run.data.metrics if name.startswith("elections")]
    summary = json.loads(reported(project, "privacy_summary.json").read_text())
    assert "elections" not in summary


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("threat.colluding=2", "threat.colluding = 2: is too many of the m = 4 devices"),
        ("algorithm=pedpfl", "topology.super_nodes.kind = 'elected': needs servers"),
        (
            "algorithm=hdp,secure_aggregation.noise=separate",
            "threat.distrusted = 'super_nodes': can't be protected from",
        ),
        ("topology.super_nodes.kind=fixed", "threat.distrusted = 'super_nodes': are elected ones"),
    ],
)
def test_what_can_not_be_is_one_line(project, kedro_run, change, line):
    params = dict(part.split("=") for part in f"{SUMS},{change}".split(","))
    result = kedro_run("--params", ",".join(f"{key}={value}" for key, value in params.items()))
    assert result.exit_code == 2
    assert line in result.output
    assert len(result.output.strip().splitlines()) == 1
