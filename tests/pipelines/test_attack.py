"""`kedro run --pipelines=attack` through a real Kedro session."""

import json

import mlflow

SMALL = "topology.fanouts=2|2,partition.scheme=iid,training.rounds=3,training.local_steps=1"
ALONE = "partition.samples_per_device=1,algorithm=hfl,attack.method=analytic"
FEW = "attack.method=lira,attack.shadows=16,attack.targets=40,partition.samples_per_device=20"


def only_run():
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    artifacts = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)}
    return run.data, artifacts


def test_a_reconstruction_leaves_pictures_and_numbers(project, kedro_run):
    observer = "attack.observer=servers,topology.trust.ratios=[0.0]"
    result = kedro_run("--pipelines", "attack", "--params", f"{SMALL},{ALONE},{observer}")
    assert result.exit_code == 0, result.output
    for words in ("PSNR", "ε at most", "∞", "A failed attack proves nothing"):
        assert words in result.output
    record = json.loads((project / "data/08_reporting/single/attack.json").read_text())
    assert [message["epsilon"] for message in record["messages"]] == ["inf"] * 4
    data, artifacts = only_run()
    assert data.metrics["attack/psnr"] == record["metrics"]["psnr"] > 60
    assert data.tags["attack_infinite"] == "attack/epsilon"
    assert {"attack.json", "attack.png", "privacy_ledger.csv"} <= artifacts
    assert not (project / "data/06_models/single/model.pt").exists()
    assert not list((project / "data/07_model_output/single/attack").glob("*"))


def test_membership_leaves_the_ledgers_bound_beside_every_number(project, kedro_run):
    result = kedro_run("--pipelines", "attack", "--params", f"{SMALL},{FEW},privacy.epsilon=1.0")
    assert result.exit_code == 0, result.output
    assert "A failed attack proves nothing" in result.output
    record = json.loads((project / "data/08_reporting/single/attack.json").read_text())
    assert [row["observer"] for row in record["memberships"]] == ["public", "far_devices"]
    data, artifacts = only_run()
    for kind in ("public", "far_devices"):
        assert 0.5 < data.metrics[f"attack/auc_most/{kind}"] < 0.6
        assert data.metrics[f"attack/epsilon/{kind}"] <= 1.0
    assert 0 < data.metrics["accuracy"] < 1
    assert "attack.png" in artifacts


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
