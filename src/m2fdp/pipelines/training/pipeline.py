"""The training pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.training import nodes


def create_pipeline() -> Pipeline:
    """Experiment to model, round metrics and what made them."""
    return Pipeline(
        [
            Node(
                nodes.train_model,
                ["prepared_experiment", "checkpoints"],
                ["model_configuration", "model", "round_metrics"],
                name="train_model",
            ),
            Node(
                nodes.package_model,
                ["prepared_experiment", "model", "round_metrics", "privacy_summary"],
                "servable_model",
                name="package_model",
            ),
        ]
    )
