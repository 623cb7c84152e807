"""The training pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.training import nodes


def create_pipeline() -> Pipeline:
    """Plan, mechanism, data set and manifest to model and round metrics."""
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
                    "manifest",
                    "parameters",
                    "checkpoints",
                ],
                ["model", "round_metrics"],
                name="train_model",
            ),
        ]
    )
