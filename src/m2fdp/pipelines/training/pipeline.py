"""The training pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.training import nodes


def create_pipeline() -> Pipeline:
    """Plan, data set and manifest to privacy summary, model and round metrics."""
    return Pipeline(
        [
            Node(
                nodes.calibrate,
                ["plan", "manifest", "params:training", "params:privacy"],
                ["mechanism", "privacy_summary"],
                name="calibrate",
            ),
            Node(
                nodes.train_model,
                [
                    "plan",
                    "mechanism",
                    "dataset",
                    "manifest",
                    "params:model",
                    "params:training",
                    "params:privacy",
                    "params:resources",
                    "params:seed",
                    "params:device",
                ],
                ["model", "round_metrics"],
                name="train_model",
            ),
        ]
    )
