"""Features in whole runs: whatever learns takes them, and all that tells of a run names them."""

import numpy as np
import pytest
from tests.finished import RUNS, only_run, output, report

from m2fdp.features import recipe

SMALL = (
    "training.rounds=2,topology.fanouts=2|3,features.map=scattering,features.dimension=30,"
    "privacy.clipping_norm=0.3"
)


@pytest.fixture(autouse=True)
def few_public_images(finished_run, monkeypatch):
    """But for the run that others read too."""
    finished_run(*RUNS["features"])
    monkeypatch.setattr(recipe, "N_PUBLIC", 150)


def test_a_run_on_features_says_what_they_were_fitted_on(finished_run):
    finished = finished_run(*RUNS["features"])
    fitted = "scattering features of 30 numbers a record, fitted on scikit-learn china.jpg"
    assert fitted in finished.said
    run = finished.run
    assert run.data.params["features.map"] == "scattering"
    assert run.data.tags["features"].startswith("scattering, fitted on scikit-learn china.jpg")
    summary = report(finished.project, "privacy_summary.json")
    fitted_on = {"scikit-learn china.jpg", "scikit-learn flower.jpg"}
    assert set(summary["features_fitted_on"]) == fitted_on
    assert any("is public: no device's record is in it" in line for line in summary["assumptions"])
    assert len(list((finished.project / "data/04_feature").glob("[!.]*.npy"))) == 1


def test_the_parts_of_a_run_share_features(project, kedro_run, monkeypatch):
    kedro_run("--pipelines", "features", "--params", SMALL, code=0)
    monkeypatch.setattr(recipe.Fit, "__call__", None)  # nothing is computed again
    kedro_run("--pipelines", "training", "--params", SMALL, code=0)
    kedro_run("--pipelines", "evaluation", "--params", SMALL, code=0)
    counts = output(project, "confusion_matrix.csv").iloc[:, 1:].to_numpy()
    rounds = output(project, "round_metrics.csv")
    assert counts.diagonal().sum() / counts.sum() == pytest.approx(rounds["accuracy"].iloc[-1])


def test_a_run_tells_the_steps_that_its_noise_allows(finished_run):
    finished = finished_run(*RUNS["features"])
    rounds = output(finished.project, "round_metrics.csv")
    (step,) = set(rounds["eta"])
    assert 0 < step < 700
    assert f"steps of {step:.4g}; with training.learning_rate = 700 noise alone" in finished.said
    told = dict(finished.histories["schedule/eta"])
    assert told == {round_: pytest.approx(step) for round_ in rounds["round"]}


def test_the_ledger_needs_no_features(project, kedro_run):
    kedro_run("--pipelines", "privacy", "--params", SMALL, code=0)
    assert not list((project / "data/04_feature").glob("*.npy"))


@pytest.mark.parametrize(
    "changes",
    [
        "topology.fanouts=2|2|2,topology.trust.ratios=1.0|0.5,model.name=logistic",
        "secure_aggregation.layers=1,secure_aggregation.noise=shared,topology.trust.ratios=1.0",
        *(
            pytest.param(each, marks=pytest.mark.full)
            for each in (
                "algorithm=hfl",
                "algorithm=hfl_dp,model.name=svm,model.hinge=crammer_singer",
                "algorithm=hdp",
                "control.enabled=true",
                "control.enabled=true,control.gap=papers,control.step_size_factor=400",
            )
        ),
    ],
)
def test_features_serve_every_algorithm_tree_and_linear_model(project, kedro_run, changes):
    kedro_run("--params", f"{SMALL},{changes}", code=0)
    assert only_run().data.metrics["accuracy"] > 0.1


@pytest.mark.full
@pytest.mark.parametrize("pipeline", ["audit", "bound"])
def test_audit_and_bound_take_features(project, kedro_run, pipeline):
    params = f"{SMALL},audit.repetitions=200"
    kedro_run("--pipelines", pipeline, "--params", params, code=0)


def test_own_arrays_become_features(project, kedro_run):
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 2
    images = (rng.random((240, 20, 24, 3)) * (0.4 + 0.6 * labels[:, None, None, None])) * 255
    arrays = {"x_train": images[:200], "x_test": images[200:]}
    arrays = {name: value.astype(np.uint8) for name, value in arrays.items()}
    np.savez(project / "own.npz", **arrays, y_train=labels[:200], y_test=labels[200:])
    kedro_run(
        "--params",
        f"{SMALL},features.map=both,dataset.name=npz,dataset.root=own.npz,"
        "partition.labels_per_device=2,algorithm=hfl",
        code=0,
    )
