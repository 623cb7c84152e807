"""`control.enabled: true` through real sessions."""

from math import sqrt

import pytest
from tests.finished import (
    CONTROLLED,
    RUNS,
    artifacts_of,
    histories,
    only_run,
    output,
    report,
    results,
)

# J's controller, that estimates beta as it goes.
SMALL = f"{CONTROLLED},control.smoothness=estimated"
# Whole shards, for which the ledger has a closed form.
UPLOAD = f"{SMALL},privacy.mechanism=upload,training.batch_size=null"
PAPER = f"{UPLOAD},privacy.calibration=paper"
METRICS = {"K", "eta", "beta", "remaining", "s_trusted", "s_untrusted", "objective"}
METRICS |= {"energy_term_j", "delay_term_s", "gap_term", "energy_share", "delay_share", "gap_share"}


def test_a_controlled_run_says_what_was_decided_and_on_what_epsilon_rests(finished_run):
    finished = finished_run(*RUNS["control"])
    assert "ε is conditional: it holds if the step sizes" in finished.said
    project, run, logged = finished.project, finished.run, finished.histories
    assert {n.removeprefix("control/") for n in logged if n.startswith("control/")} == METRICS
    steps = dict(logged["control/K"])
    rounds = len(steps)
    assert sum(steps.values()) == 20 and steps[1] == 5 and rounds <= 12
    assert dict(logged["control/remaining"]) == {
        t: 20 - sum(steps[s] for s in range(1, t)) for t in steps
    }
    eta, beta = dict(logged["control/eta"]), dict(logged["control/beta"])
    for t in steps:
        assert eta[t] == pytest.approx(20 / 20 / beta[t] / sqrt(t + 1))
    metrics = output(project, "round_metrics.csv")
    assert set(metrics.columns) >= METRICS
    assert metrics["K"].tolist() == [steps[t] for t in metrics["round"]]
    assert metrics["round"].iloc[-1] == rounds
    assert metrics["epsilon"].is_monotonic_increasing
    assert 0.98 * 4 < metrics["epsilon"].iloc[-1] <= 4
    assert run.data.tags["privacy"] == "conditional"
    assert "stopped_early" not in run.data.tags
    summary = report(project, "privacy_summary.json")
    assert summary["guarantee"] == "conditional"
    assert summary["rounds"] == summary["rounds_planned"] == rounds
    assert "un-noised gradients" in summary["assumptions"][0]
    reached = report(project, "run_summary.json")
    assert reached["privacy"] == "conditional"
    for values in (summary, reached, run.data.metrics):
        assert "epsilon_conditional" in values and "epsilon_verified" not in values
    ledger = report(project, "privacy_ledger.csv")
    assert set(ledger["releases"]) == {20}
    assert ledger["assumption"].str.endswith("(control.smoothness declares beta instead)").all()


def test_with_a_declared_beta_the_guarantee_is_unconditional(project, kedro_run):
    result = kedro_run("--params", f"{CONTROLLED},control.smoothness=0.7", code=0)
    assert "conditional" not in result.output
    run = only_run()
    assert run.data.tags["privacy"] == "verified"
    assert {value for _, value in histories(run)["control/beta"]} == {0.7}


def test_what_is_planned_before_training_is_what_is_trained(project, kedro_run, caplog):
    """With the mechanism's gap, the default; a run without control leaves no plan behind."""
    small = "topology.fanouts=4|3,training.batch_size=null,threads=1,dataset.scale=unit_norm"
    control = "control.enabled=true,control.smoothness=0.1,control.dissimilarity=0.1"
    kedro_run("--params", f"{small},{control},training.rounds=12,training.evaluate_every=1", code=0)
    run, plan = only_run(), report(project, "planned_rounds.csv")
    planned = f"The controller plans {len(plan)} rounds; local steps of each: {plan['K'].min()}"
    assert any(planned in record.getMessage() for record in caplog.records)
    assert artifacts_of(run) >= {"planned_rounds.csv", "planned_rounds.png"}
    logged = histories(run)
    for column in ("K", "eta", "s_trusted", "s_untrusted", "energy_share", "gap_share"):
        assert [value for _, value in logged[f"control/{column}"]] == pytest.approx(plan[column])
    summary = report(project, "privacy_summary.json")
    assert summary["guarantee"] == "verified" and summary["rounds"] == len(plan)
    assert 0.98 * 4 < summary["epsilon_verified"] <= 4
    kedro_run("--params", f"{small},training.rounds=1", code=0)
    assert not list((project / "data/08_reporting/single").glob("planned_rounds*"))


def test_the_papers_mechanism_is_accounted_for_the_rounds_that_are_planned(finished_run):
    project = finished_run("--params", PAPER).project
    summary = report(project, "privacy_summary.json")
    metrics = output(project, "round_metrics.csv")
    assert metrics["epsilon"].iloc[-1] == pytest.approx(summary["epsilon_conditional"])
    assert summary["epsilon_nominal"] == 4


@pytest.mark.full
def test_a_budget_ends_a_controlled_run_early(project, kedro_run):
    kedro_run("--params", f"{SMALL},privacy.budget=3", code=0)
    run = only_run()
    assert run.data.tags["stopped_early"] == "true"
    steps = dict(histories(run)["control/K"])
    assert sum(steps.values()) < 20
    metrics = output(project, "round_metrics.csv")
    assert metrics["epsilon"].iloc[-1] <= 3


@pytest.mark.full
@pytest.mark.parametrize("params", [SMALL, PAPER])
def test_a_controlled_run_that_was_cut_off_equals_one_that_was_not(
    project, kedro_run, finished_run, cut, params
):
    """Files and every metric of every round, at a round between two evaluations."""
    whole = finished_run("--params", params).results
    params = f"{params},training.checkpoint_every=3"
    cut(5)
    assert isinstance(kedro_run("--params", f"{params},cell=cut").exception, OSError)
    cut(None)
    result = kedro_run("--params", f"{params},cell=cut,resume=true", code=0)
    assert "Training goes on after round 3." in result.output
    assert results(project, "cut", only_run()) == whole


@pytest.mark.full
def test_a_controlled_run_that_diverges_names_its_own_key(project, kedro_run):
    deep = "model.name=cnn12,model.channels=1|1|1"  # whose scores are products of weights
    params = f"{CONTROLLED},{deep},control.step_size_factor=1e9,control.smoothness=1e-9"
    result = kedro_run("--params", params, code=2)
    last = result.output.splitlines()[-1]
    assert last.startswith("Error: control.step_size_factor = 'eta ")
    assert "training diverged by round 2" in last
