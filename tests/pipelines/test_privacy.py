"""The privacy pipeline, alone and as a part of whole runs, through real sessions."""

from math import inf

import pytest
from tests.finished import RUNS, SMALL, UPLOAD, only_run, output, report

PAPER = f"{UPLOAD},privacy.calibration=paper"
FILES = {
    "epsilon_over_rounds.csv",
    "epsilon_over_rounds.png",
    "privacy_ledger.csv",
    "privacy_ledger.png",
    "privacy_summary.json",
}


def ledger_of(project):
    return report(project, "privacy_ledger.csv")


@pytest.fixture
def plan(kedro_run):
    """`kedro run --pipelines=privacy` with the given parameters."""

    def invoke(params):
        return kedro_run("--pipelines", "privacy", "--params", params, code=0)

    return invoke


@pytest.mark.parametrize(
    "arguments",
    [
        RUNS["privacy"],
        ("--pipelines=privacy", "--params", UPLOAD),
        ("--pipelines=privacy", "--params", f"{SMALL},algorithm=hfl"),
    ],
    ids=["gradient", "upload", "hfl"],
)
def test_a_budget_can_be_planned_without_training(finished_run, arguments):
    finished = finished_run(*arguments)
    if "hfl" in arguments[-1]:  # no table whose every row says the same
        assert "Privacy: no clipping and no noise" in finished.output
        assert "∞" not in finished.output
    else:
        assert "Privacy ledger at δ = 1e-05" in finished.output
        assert "the cloud" in finished.output
    assert finished.artifacts >= FILES
    assert not {"model.pt", "round_metrics.csv"} & finished.artifacts
    assert "stopped_early" not in finished.run.data.tags
    folder = finished.project / "data/08_reporting/single"
    assert {file.name for file in folder.iterdir()} >= FILES
    assert (folder / "privacy_ledger.png").read_bytes().startswith(b"\x89PNG")


def test_metrics_are_what_the_ledger_says(finished_run):
    finished = finished_run("--pipelines=privacy", "--params", UPLOAD)
    run, ledger = finished.run, ledger_of(finished.project)
    assert run.data.tags["privacy"] == "verified"
    metrics = run.data.metrics
    assert metrics["epsilon_nominal"] == 4
    distrusted = ledger[ledger["distrusted"]]
    assert set(distrusted["kind"]) == {"servers", "cloud"}
    assert metrics["epsilon_verified"] == pytest.approx(distrusted["epsilon"].max(), rel=1e-9)
    of_others, as_verified = {}, set()
    for kind, epsilon in ledger.groupby("kind")["epsilon"].max().items():
        if epsilon == pytest.approx(metrics["epsilon_verified"], rel=1e-3):
            as_verified.add(f"epsilon_observer/{kind}")
        elif epsilon != inf:
            of_others[f"epsilon_observer/{kind}"] = pytest.approx(epsilon, rel=1e-9)
    assert set(run.data.tags["epsilon_as_verified"].split()) == as_verified
    assert of_others  # who learns as much as the distrusted has no chart of the same number
    assert {k: v for k, v in metrics.items() if k.startswith("epsilon_observer/")} == of_others
    # Trusted servers hand un-noised averages down, which siblings below them see.
    assert "epsilon_observer/siblings" not in metrics
    trace = report(finished.project, "epsilon_over_rounds.csv")
    assert trace["round"].tolist() == [1, 2, 3]
    assert trace["cloud"].is_monotonic_increasing


def test_accountants_noise_keeps_every_distrusted_observer_within_the_target(finished_run):
    finished = finished_run(*RUNS["upload"])
    run, ledger = finished.run, ledger_of(finished.project)
    assert 0.98 * 4 < run.data.metrics["epsilon_verified"] <= 4
    assert (ledger.loc[ledger["distrusted"], "epsilon"] <= 4).all()
    rounds = output(finished.project, "round_metrics.csv")
    assert rounds["epsilon"].is_monotonic_increasing
    assert rounds["epsilon"].iloc[-1] == pytest.approx(run.data.metrics["epsilon_verified"])


@pytest.mark.parametrize(("alpha", "exceeds"), [(1, True), (20, False)])
def test_the_papers_noise_is_reported_at_what_it_is_worth(plan, alpha, exceeds):
    plan(f"{PAPER},privacy.alpha={alpha}")
    run = only_run()
    assert run.data.tags["privacy"] == "verified"
    assert run.data.metrics["epsilon_nominal"] == 4
    assert (run.data.metrics["epsilon_verified"] > 4) == exceeds


def test_a_budget_ends_the_run_before_the_round_that_would_pass_it(project, kedro_run):
    result = kedro_run(
        "--params", f"{PAPER},cell=long,threads=1,training.rounds=8,privacy.budget=4", code=0
    )
    assert "training stops after 2 of 8 rounds" in " ".join(result.output.split())
    run = only_run()
    assert run.info.status == "FINISHED"
    assert run.data.tags["stopped_early"] == "true"
    assert run.data.metrics["rounds_trained"] == 2
    assert run.data.metrics["epsilon_verified"] <= 4
    assert report(project, "privacy_summary.json", "long")["rounds"] == 2


def test_every_warning_is_given_once(finished_run):
    records = finished_run(*RUNS["upload"]).records
    logged = [line for name, *line in records if name == "m2fdp.pipelines.privacy"]
    # A newcomer's links are no warning, and what ε rests on is nobody's to change.
    assert [level for level, _ in logged] == ["WARNING", "INFO", "INFO"]
    assert not any("\n" in line for _, line in logged)
    assert "siblings (ε ∞)" in logged[0][1]
    assert "uplinks (ε ∞)" in logged[1][1] and "encrypt" in logged[1][1]
    assert "assumptions" in logged[2][1]


def test_zones_are_tabulated_beside_the_ledger(project, plan):
    mixed = (
        "algorithm=hdp_mixed,topology.fanouts=5|4,zones.device_noise=0.4,zones.server_noise=0.4,"
        "zones.cloud_noise=true,privacy.mechanism=upload,privacy.unit=device,training.rounds=1,"
        "privacy.calibration=multiplier,privacy.noise_multiplier=1.0,training.local_aggregation=null"
    )
    plan(mixed)
    table = report(project, "zones_table.csv")
    assert set(table["case"]) == {"C7"}
    # Eight devices, two super-nodes and the cloud.
    assert table["v"].tolist() == [11.0] * len(table)
    cloud = table[table["observer"] == "cloud"].set_index("about")["epsilon"]
    assert cloud["super-nodes add noise"] == pytest.approx(4.377, rel=5e-3)
    assert cloud["nobody adds noise"] == float("inf")
    assert only_run().data.metrics["epsilon_nominal"] == pytest.approx(4.377, rel=5e-3)
