"""Zones that elect their super-nodes, in whole runs through real sessions."""

import pytest
from tests.finished import RUNS, artifacts_of, only_run, output, report

from m2fdp.costs.config import ResourcesConfig
from m2fdp.costs.resources import link_cost

# Two zones of four digits' devices each, whose sums only are ever read.
SUMS = (
    "algorithm=hfl_dp,topology.fanouts=2|4,topology.super_nodes.kind=elected,threads=1,"
    "secure_aggregation.layers=[2],secure_aggregation.noise=shared,"
    "threat.distrusted=servers|cloud|super_nodes,"
    "training.rounds=6,training.local_steps=1,training.local_aggregation=null"
)


def test_a_run_with_elections_and_secure_sums(project, kedro_run):
    kedro_run("--params", SUMS, code=0)
    run = only_run()
    summary = report(project, "privacy_summary.json")
    assert summary["epsilon_verified"] <= 4 and summary["guarantee"] == "verified"
    assert "super_nodes" in summary["distrusted"]
    assert any("elections are uniform" in line for line in summary["assumptions"])

    table = report(project, "elections.csv")
    columns = "zone device present served under_one_other under_coalition"
    assert list(table) == columns.split()
    assert table.groupby("zone")["served"].sum().tolist() == [6, 6]
    assert (table["present"] == 6).all()
    metrics = run.data.metrics
    assert metrics["elections/most_served"] == table["served"].max()
    assert metrics["elections/most_under_one_other"] == table["under_one_other"].max()
    assert summary["elections"]["most_under_coalition"] == table["under_coalition"].max()
    assert "elections.csv" in artifacts_of(run)

    ledger = report(project, "privacy_ledger.csv")
    lines = ledger[ledger["kind"] == "super_nodes"]
    assert len(lines) and lines["distrusted"].all()
    assert lines["assumption"].str.contains("of 6 rounds").all()
    assert lines["epsilon"].max() == pytest.approx(summary["epsilon_verified"])

    rounds = output(project, "round_metrics.csv")
    # What elections and hidden sums add to 640 words a device and a server.
    resources = ResourcesConfig()
    device = link_cost(2, 32 * 640 + 8 * (64 + 86 * 3 + 37 * 4) + 2 * 256 * 3, resources)
    server = link_cost(1, 32 * 640, resources)
    joules = 8 * 1e-3 + 8 * device.energy_j + 2 * server.energy_j
    assert rounds["energy_j"].iloc[-1] == pytest.approx(6 * joules)


def test_only_elections_leave_a_table(project, kedro_run, finished_run):
    finished_run(*RUNS["zones"]).copy_data(project)
    table = project / "data/08_reporting/single/elections.csv"
    assert table.is_file()
    *pipeline, elected = RUNS["zones"]
    kedro_run(*pipeline, elected.replace("elected", "fixed"), code=0)
    assert not table.exists()
    run = only_run()
    artifacts = artifacts_of(run)
    assert "privacy_ledger.csv" in artifacts and "elections.csv" not in artifacts
    assert not [name for name in run.data.metrics if name.startswith("elections")]
    assert "elections" not in report(project, "privacy_summary.json")
