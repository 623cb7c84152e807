"""The evaluation pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.evaluation import nodes


def create_pipeline() -> Pipeline:
    """Model and round metrics, as they are checked, to figures, summary and card."""
    return Pipeline(
        [
            Node(
                nodes.check_model,
                ["model", "model_configuration", "experiment"],
                "checked_model",
                name="check_model",
            ),
            Node(
                nodes.count_confusions,
                ["checked_model", "prepared_experiment"],
                "confusion_matrix",
                name="count_confusions",
            ),
            Node(
                nodes.check_rounds,
                ["round_metrics", "privacy_summary", "confusion_matrix", "experiment"],
                "checked_rounds",
                name="check_rounds",
            ),
            Node(
                nodes.draw_confusions,
                "confusion_matrix",
                "confusion_matrix_figure",
                name="draw_confusions",
            ),
            Node(
                nodes.draw_accuracy,
                ["checked_rounds", "privacy_summary", "params:algorithm", "params:seed"],
                "accuracy_curve",
                name="draw_accuracy",
            ),
            Node(
                nodes.summarise,
                ["checked_rounds", "privacy_summary", "params:algorithm", "params:seed"],
                "run_summary",
                name="summarise",
            ),
            Node(
                nodes.fill_card,
                ["experiment", "run_summary", "privacy_summary", "privacy_ledger"],
                "card",
                name="fill_card",
            ),
            Node(
                nodes.write_card, "card", ["privacy_card", "privacy_card_page"], name="write_card"
            ),
            Node(nodes.print_result, "run_summary", None, name="print_result"),
        ]
    )
