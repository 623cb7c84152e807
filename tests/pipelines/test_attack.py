"""`kedro run --pipelines=attack` through a real Kedro session."""

from tests.finished import ATTACKED, RUNS, artifacts_of, only_run, report


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
