"""The evaluation pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.evaluation import nodes


def create_pipeline() -> Pipeline:
    """Model and round metrics to confusion matrix, figures and run summary."""
    return Pipeline(
        [
            Node(
                nodes.count_confusions,
                ["model", "dataset", "manifest", "params:model", "params:training"],
                "confusion_matrix",
                name="count_confusions",
            ),
            Node(
                nodes.draw_confusions,
                "confusion_matrix",
                "confusion_matrix_figure",
                name="draw_confusions",
            ),
            Node(
                nodes.draw_accuracy,
                ["round_metrics", "params:algorithm", "params:seed"],
                "accuracy_curve",
                name="draw_accuracy",
            ),
            Node(
                nodes.summarise,
                ["round_metrics", "privacy_summary", "params:algorithm", "params:seed"],
                "run_summary",
                name="summarise",
            ),
        ]
    )
