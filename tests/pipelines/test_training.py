"""Whole runs through real Kedro sessions: every algorithm, mechanism and baseline."""

import sys
import types

import pandas as pd
import pytest
import torch
from tests.finished import RUNS, SEED, SMALL, manifest_of, only_run, output, report


def confusions(project):
    return output(project, "confusion_matrix.csv").iloc[:, 1:].to_numpy()


def files_of(project, cell="single"):
    return {
        name: (project / "data" / folder / cell / name).read_bytes()
        for folder, name in [
            ("05_model_input", "manifest.csv"),
            ("06_models", "model.pt"),
            ("07_model_output", "round_metrics.csv"),
            ("08_reporting", "run_summary.json"),
        ]
    }


def test_one_run_leaves_everything_a_reader_needs(finished_run):
    finished = finished_run(*RUNS["training"])
    project, run = finished.project, finished.run
    assert run.info.status == "FINISHED"
    named = {"algorithm": "m2fdp", "role": "method", "dataset": "digits", "seed": str(SEED)}
    assert (named | {"privacy": "verified"}).items() <= run.data.tags.items()
    assert run.data.params["training.rounds"] == "3"
    assert run.data.params["privacy.epsilon"] == "4.0"
    metrics = run.data.metrics
    assert metrics["epsilon_verified"] <= metrics["epsilon_nominal"] == 4
    assert {"accuracy", "loss", "energy_j", "delay_s", "epsilon", "wall_s"} <= set(metrics)
    assert [round_ for round_, _ in finished.histories["accuracy"]] == [1, 2, 3]
    drawn = {"accuracy_curve", "confusion_matrix", "epsilon_over_rounds", "label_distribution"}
    drawn |= {"network", "privacy_ledger"}
    tables = drawn - {"accuracy_curve", "label_distribution"} | {"manifest", "round_metrics"}
    named = {"configuration.json", "manifest_checks.html", "model.pt", "privacy_card.md"}
    named |= {"privacy_summary.json", "run_summary.json"}
    files = {f"{name}.png" for name in drawn} | {f"{name}.csv" for name in tables}
    assert finished.artifacts == files | named
    summary = report(project, "run_summary.json")
    rounds = output(project, "round_metrics.csv")
    assert summary["accuracy"] == rounds["accuracy"].iloc[-1] == metrics["accuracy"]
    counts = confusions(project)
    assert counts.diagonal().sum() / counts.sum() == pytest.approx(summary["accuracy"])
    # The last thing that a user sees, a line each in the terminal.
    last = finished.output.partition(f"M²FDP, seed {SEED}, after 3 rounds")[2]
    assert f"accuracy  {summary['accuracy']:.4f}" in last
    assert "(verified), nominal 4, δ = 1e-05" in last
    assert "data/08_reporting/single; make ui shows the run." in " ".join(last.split())
    # Warnings are for what the user can change: here when to aggregate.
    assert "assumptions; privacy_summary.json lists them." in finished.said
    assert finished.output.count("WARNING") == 1
    assert "held_out" not in run.data.tags
    diagnostics = "metrics_by_client_figure, model_configuration, privacy_card"
    assert diagnostics in run.data.tags["diagnostic"]
    state = torch.load(project / "data/06_models/single/model.pt", weights_only=True)
    assert {name: tuple(value.shape) for name, value in state.items()} == {"1.weight": (10, 64)}


@pytest.mark.parametrize("algorithm", ["hfl", "pedpfl"])
def test_every_baseline(project, kedro_run, algorithm):
    kedro_run("--params", f"{SMALL},algorithm={algorithm}", code=0)
    run = only_run()
    assert run.data.tags["role"] == "baseline"
    assert run.data.tags["privacy"] == ("none" if algorithm == "hfl" else "verified")
    if algorithm == "hfl":
        assert not any(name.startswith("epsilon") for name in run.data.metrics)


def test_bytes_repeat_and_do_not_depend_on_threads(project, kedro_run, finished_run):
    params = f"{SMALL},cell=other,threads=3"
    kedro_run("--params", params, code=0)
    assert files_of(project, "other") == files_of(finished_run(*RUNS["training"]).project)


def test_a_deep_ragged_tree_and_a_cnn_by_minibatch(project, kedro_run):
    edges = ["cloud,A", "cloud,B", "A,a", "B,b", "B,c", "a,0", "a,1", "b,2", "c,3", "c,4", "c,5"]
    (project / "edges.csv").write_text("\n".join(["parent,child", *edges]) + "\n")
    kedro_run(
        "--params",
        "topology.edges=edges.csv,topology.fanouts=null,topology.trust.ratios=null,"
        "topology.trust.untrusted=B|b,model.name=cnn12,model.channels=2|3|4,training.rounds=10,"
        "training.batch_size=16,training.local_aggregation.2=1,partition.scheme=dirichlet,"
        "partition.alpha=5",
        code=0,
    )
    table = pd.read_csv(project / "data/05_model_input/single/network.csv").set_index("node")
    # A is trusted; below B, c is trusted and b is not.
    assert table.index[table["adds_noise"]].tolist() == ["A", "c", "2"]
    assert only_run().data.metrics["epsilon_verified"] <= 4


def test_evaluation_on_held_out_training_records(project, kedro_run):
    params = f"{SMALL},partition.validation_fraction=0.2,training.evaluate_on=validation"
    result = kedro_run("--params", params, code=0)
    n_validation = int((manifest_of(project)["split"] == "validation").sum())
    assert confusions(project).sum() == n_validation > 200
    # Epsilon says nothing about them, and the run does.
    said = " ".join(result.output.split())
    assert f"{n_validation} validation records lie in clear with the cloud" in said
    assert only_run().data.tags["held_out"] == "in clear"
    privacy = report(project, "privacy_summary.json")
    assert privacy["records_in_clear"] == {"validation": n_validation, "test": 359}
    declared = " ".join(privacy["outside_the_promise"])
    for words in (f"{n_validation} validation records", "359 test records", "label_distribution"):
        assert words in declared


STEEP = """
from torch import nn


class Steep(nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1)) * 1e30


def steep(shape, n_classes):
    return Steep(shape[1] * shape[2], n_classes)
"""


def test_divergence_ends_in_one_line_and_leaves_no_model(project, kedro_run, monkeypatch):
    (project / "steep.py").write_text(STEEP)
    monkeypatch.syspath_prepend(project)
    params = f"{SMALL},model.name=steep:steep,algorithm=hfl,training.learning_rate=1e9"
    result = kedro_run("--params", params, code=2)
    assert "training.learning_rate" in result.output.splitlines()[-1]
    assert only_run().info.status == "FAILED"
    assert not (project / "data/06_models/single/model.pt").exists()


def test_a_model_with_dropout_is_refused_before_anything_is_written(
    project, kedro_run, monkeypatch
):
    module = types.ModuleType("own_models")
    module.dropping = lambda shape, n_classes: torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.AlphaDropout(0.5), torch.nn.Linear(64, n_classes)
    )
    monkeypatch.setitem(sys.modules, "own_models", module)
    result = kedro_run("--params", f"{SMALL},model.name=own_models:dropping", code=2)
    (line,) = [line for line in result.output.splitlines() if "model.name" in line]
    assert "has AlphaDropout (layer 1)" in line
    assert not [path for path in (project / "data").rglob("*.*") if path.name != ".lock"]


OWN = """
import numpy as np
import torch
from torch import nn
from m2fdp.core.data.dataset import Dataset


def bars():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=400)
    images = 0.2 * rng.random((400, 8, 8, 1))
    images[np.arange(400), 2 * labels] += 0.8
    return Dataset("bars", images, labels, 300, 3)


def in_turn(labels, n_classes, edge_of_device, rng):
    return rng.permutation(len(labels)) % len(edge_of_device)


def net(shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, n_classes))


def focal(scores, labels):
    likely = scores.softmax(-1).gather(-1, labels[:, None])[:, 0]
    return -((1 - likely) ** 2) * likely.log()
"""
OWN_PARAMS = (
    "dataset.name=own_things:bars,partition.scheme=own_things:in_turn,model.name=own_things:net,"
    "model.loss=own_things:focal,topology.fanouts=2|3,training.rounds=3,training.learning_rate=2.0,"
    "privacy.epsilon=50,threads=1"
)


def test_data_set_split_model_and_loss_of_ones_own(project, kedro_run):
    (project / "own_things.py").write_text(OWN)
    before = list(sys.path)
    result = kedro_run(f"--params={OWN_PARAMS}")
    sys.modules.pop("own_things", None)
    assert result.exit_code == 0, result.output
    assert sys.path == before
    manifest = manifest_of(project)
    assert set(manifest["dataset"]) == {"own_things:bars"}
    assert manifest.groupby("device").size().drop(-1).tolist() == [50] * 6
    assert output(project, "round_metrics.csv")["accuracy"].iloc[-1] > 0.6
