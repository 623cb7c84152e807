"""`kedro run --pipelines=bound` through a real Kedro session."""

import json

import mlflow
import numpy as np
import pandas as pd
import pytest

SMALL = "topology.fanouts=4|3,training.rounds=4,training.local_steps=2"
UPLOAD = "privacy.mechanism=upload,privacy.calibration=paper"


def test_a_run_leaves_bounds_terms_and_what_was_measured(project, kedro_run):
    result = kedro_run("--pipelines", "bound", "--params", f"{SMALL},{UPLOAD}")
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "Theorem 1 is stated for steps" in said
    assert "clipping changes no gradient" in said
    assert "Theorem 1 as printed; plain mean" in said
    reporting = project / "data/08_reporting/single"
    table = pd.read_csv(reporting / "bound.csv")
    assert table["round"].tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(table["bound"], table[["a1", "a2", "b"]].sum(axis=1))
    assert (table["weighted_gradient_norm_sq"] <= table["proven_bound"]).all()
    assert (table["mean_gradient_norm_sq"] > 0).all()
    layers = pd.read_csv(reporting / "bound_layers.csv")
    summary = json.loads((reporting / "bound_summary.json").read_text())
    constants = summary["constants"]
    factor = 8 * 2 * 640 * 2**4 * constants["sampling_rate"] ** 2 * np.log(1e5) / 4.0**2
    assert table["b"].tolist() == pytest.approx([factor * layers["summand"].sum()] * 4)
    # p_1 = 1/2, s_1 = 3, alpha = 1.
    expected = [[0.5 / 9, 0.5 / 9, 0.5 / 3], [1, 0, 1]]
    np.testing.assert_allclose(layers[["A", "B", "C"]], expected)
    assert summary["estimated"] == ["smoothness", "gradient_variance"]
    assert summary["step_size"]["within_theorem_1"] is False
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    artifacts = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)}
    assert "bound, bound_figure, bound_summary, gradient_norms" in run.data.tags["diagnostic"]
    names = {"bound.csv", "bound.png", "bound_layers.csv", "bound_summary.json"}
    assert names | {"gradient_norms.csv"} <= artifacts
    assert not (project / "data/06_models/single/model.pt").exists()


def test_without_privacy_and_within_theorem_1(project, kedro_run):
    """No noise, so (b) is 0; steps small enough for the theorem raise no warning."""
    params = (
        f"{SMALL},algorithm=hfl,training.step_size=inverse_sqrt,training.learning_rate=0.01,"
        "training.evaluate_every=3"
    )
    result = kedro_run("--pipelines", "bound", "--params", params)
    assert result.exit_code == 0, result.output
    assert "Theorem 1 is stated for" not in result.output
    assert "clipping changes no gradient" not in result.output
    reporting = project / "data/08_reporting/single"
    table = pd.read_csv(reporting / "bound.csv")
    assert table["round"].tolist() == [3, 4]
    assert (table[["b", "proven_b"]] == 0).all(axis=None)
    assert (table["weighted_gradient_norm_sq"] <= table["proven_bound"]).all()
    summary = json.loads((reporting / "bound_summary.json").read_text())
    assert summary["estimated"] == ["smoothness", "gradient_variance", "gradient_norm"]
    assert summary["step_size"]["within_theorem_1"] is True


@pytest.mark.full
def test_what_is_measured_is_the_run_that_kedro_run_trains(project, kedro_run):
    import torch

    from m2fdp.config import DatasetConfig, ModelConfig
    from m2fdp.data.dataset import features
    from m2fdp.data.manifest import shards_of
    from m2fdp.data.sources import load_dataset
    from m2fdp.models.registry import build_model
    from m2fdp.simulation.evaluation import local_gradients

    assert kedro_run("--params", SMALL).exit_code == 0
    assert kedro_run("--pipelines", "bound", "--params", SMALL).exit_code == 0
    state = torch.load(project / "data/06_models/single/model.pt", weights_only=True)
    dataset = load_dataset(DatasetConfig())
    shards = shards_of(pd.read_csv(project / "data/05_model_input/single/manifest.csv"))
    found = local_gradients(
        build_model(ModelConfig(), dataset.shape, dataset.n_classes, seed=0),
        state["1.weight"].flatten(),
        torch.as_tensor(features(dataset.images[shards.samples])),
        torch.as_tensor(dataset.labels[shards.samples]),
        shards.sizes,
    )
    measured = pd.read_csv(project / "data/07_model_output/single/gradient_norms.csv").iloc[-1]
    assert measured["loss"] == pytest.approx(found.losses.mean().item())
    squared = found.gradients.double().mean(dim=0).square().sum().item()
    assert measured["gradient_norm_sq"] == pytest.approx(squared, rel=1e-4)
