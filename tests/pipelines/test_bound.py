"""`kedro run --pipelines=bound` through a real Kedro session."""

import numpy as np
import pytest
import torch
from tests.builders import digits
from tests.finished import RUNS, SEED, SMALL, manifest_of, output, report

from m2fdp.convergence.measurement import local_gradients
from m2fdp.core.config import ModelConfig
from m2fdp.core.data.dataset import features
from m2fdp.core.data.manifest import shards_of
from m2fdp.core.models.registry import build_model


def test_a_run_leaves_bounds_terms_and_what_was_measured(finished_run):
    finished = finished_run(*RUNS["bound"])
    assert "Theorem 1 is stated for steps" in finished.said
    assert "clipping changes no gradient" in finished.said
    assert "Theorem 1 as printed; plain mean" in finished.said
    table = report(finished.project, "bound.csv")
    assert table["round"].tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(table["bound"], table[["a1", "a2", "b"]].sum(axis=1))
    assert (table["weighted_gradient_norm_sq"] <= table["proven_bound"]).all()
    assert (table["mean_gradient_norm_sq"] > 0).all()
    layers = report(finished.project, "bound_layers.csv")
    summary = report(finished.project, "bound_summary.json")
    constants = summary["constants"]
    factor = 8 * 2 * 640 * 2**4 * constants["sampling_rate"] ** 2 * np.log(1e5) / 4.0**2
    assert table["b"].tolist() == pytest.approx([factor * layers["summand"].sum()] * 4)
    # p_1 = 1/2, s_1 = 3, alpha = 1.
    expected = [[0.5 / 9, 0.5 / 9, 0.5 / 3], [1, 0, 1]]
    np.testing.assert_allclose(layers[["A", "B", "C"]], expected)
    assert summary["estimated"] == ["smoothness", "gradient_variance"]
    assert summary["step_size"]["within_theorem_1"] is False
    diagnostic = finished.run.data.tags["diagnostic"]
    assert "bound, bound_figure, bound_summary, gradient_norms" in diagnostic
    names = {"bound.csv", "bound.png", "bound_layers.csv", "bound_summary.json"}
    assert names | {"gradient_norms.csv"} <= finished.artifacts
    assert not (finished.project / "data/06_models/single/model.pt").exists()


def test_without_privacy_and_within_theorem_1(project, kedro_run):
    """No noise, so (b) is 0; steps small enough for the theorem raise no warning."""
    params = (
        f"{SMALL},training.rounds=4,algorithm=hfl,training.step_size=inverse_sqrt,training.learning_rate=0.01,"
        "training.evaluate_every=3"
    )
    result = kedro_run("--pipelines", "bound", "--params", params, code=0)
    assert "Theorem 1 is stated for" not in result.output
    assert "clipping changes no gradient" not in result.output
    table = report(project, "bound.csv")
    assert table["round"].tolist() == [3, 4]
    assert (table[["b", "proven_b"]] == 0).all(axis=None)
    assert (table["weighted_gradient_norm_sq"] <= table["proven_bound"]).all()
    summary = report(project, "bound_summary.json")
    assert summary["estimated"] == ["smoothness", "gradient_variance", "gradient_norm"]
    assert summary["step_size"]["within_theorem_1"] is True


@pytest.mark.full
def test_what_is_measured_is_the_run_that_kedro_run_trains(project, kedro_run, finished_run):
    finished_run(*RUNS["training"]).copy_data(project)
    kedro_run("--pipelines", "bound", "--params", SMALL, code=0)
    state = torch.load(project / "data/06_models/single/model.pt", weights_only=True)
    dataset, shards = digits(), shards_of(manifest_of(project))
    of_devices = local_gradients(
        build_model(ModelConfig(), dataset.shape, dataset.n_classes, seed=SEED),
        state["1.weight"].flatten(),
        torch.as_tensor(features(dataset.images[shards.samples])),
        torch.as_tensor(dataset.labels[shards.samples]),
        shards.sizes,
    )
    measured = output(project, "gradient_norms.csv").iloc[-1]
    assert measured["loss"] == pytest.approx(of_devices.losses.mean().item())
    squared = of_devices.gradients.double().mean(dim=0).square().sum().item()
    assert measured["gradient_norm_sq"] == pytest.approx(squared, rel=1e-4)
