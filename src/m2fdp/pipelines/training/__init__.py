"""Calibrate the mechanism and train."""

from kedro.pipeline import Pipeline

from m2fdp.pipelines.naming import node
from m2fdp.pipelines.training import nodes

_TRAINED = ["prepared_experiment", "model", "round_metrics", "privacy_summary"]


def create_pipeline() -> Pipeline:
    """Experiment to model, round metrics and what made them."""
    model = ["model_configuration", "model", "round_metrics"]
    return Pipeline(
        [
            node(nodes.train_model, ["prepared_experiment", "checkpoints", "begin_run"], model),
            node(nodes.package_model, _TRAINED, "servable_model"),
        ]
    )
