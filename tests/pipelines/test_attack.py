"""`kedro run --pipelines=attack` through a real Kedro session."""

from tests.finished import ATTACKED, RUNS, artifacts_of, only_run, report


def test_a_reconstruction_leaves_pictures_and_numbers(project, kedro_run):
    params = (
        f"{ATTACKED},training.local_steps=1,partition.samples_per_device=1,algorithm=hfl,"
        "attack.method=analytic,attack.observer=servers,topology.trust.ratios=[0.0]"
    )
    result = kedro_run("--pipelines", "attack", "--params", params)
    assert result.exit_code == 0, result.output
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


def test_what_can_not_be_attacked_ends_in_one_line(project, kedro_run):
    cases = {
        "attack.method=lira,attack.observer=cloud": "attack.observer = 'cloud': reads more",
        "attack.method=analytic,model.name=lenet": "attack.method = 'analytic': inverts a linear",
        "attack.round=31": "attack.round = 31: is none of training.rounds = 30",
        "attack.observer=far_devices,algorithm=pedpfl": "attack.observer = 'far_devices': reads no",
        "algorithm=cdp": "attack.observer = 'cloud': is trusted",
        "secure_aggregation.layers=[1],secure_aggregation.dropout=0.1": "dropout = 0.1: leaves",
        "secure_aggregation.layers=[1],secure_aggregation.protocol=masks": "protocol = 'masks'",
        "training.participants=2": "training.participants = 2: leaves open",
        "attack.shadows=12": "attack.shadows = 12",
    }
    for params, words in cases.items():
        result = kedro_run("--pipelines", "attack", "--params", params)
        assert result.exit_code == 2, params
        assert words in result.output.splitlines()[-1], result.output
