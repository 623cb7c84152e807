"""The training pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.training import nodes


def create_pipeline() -> Pipeline:
    """Plan, mechanism, data set and manifest to model, round metrics and what made them."""
    return Pipeline(
        [
            Node(
                nodes.train_model,
                [
                    "plan",
                    "run_plan",
                    "mechanisms",
                    "affordable_rounds",
                    "dataset",
                    "checked_manifest",
                    "parameters",
                    "checkpoints",
                ],
                ["model_configuration", "model", "round_metrics"],
                name="train_model",
            ),
        ]
    )
