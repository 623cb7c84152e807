"""What the trained model is worth: figures, confusion matrix, summary."""

from kedro.pipeline import Pipeline

from m2fdp.pipelines.evaluation import nodes
from m2fdp.pipelines.naming import node
from m2fdp.reporting.tables import print_result

_ROUNDS = ["round_metrics", "privacy_summary", "confusion_matrix", "experiment"]
_RUN = ["checked_rounds", "privacy_summary", "params:algorithm", "params:seed"]
_SUMMARY = ["checked_rounds", "privacy_summary", "confusion_matrix", "experiment"]
_CARD = ["experiment", "run_summary", "privacy_summary", "privacy_ledger"]


def create_pipeline() -> Pipeline:
    """Model and round metrics, as they are checked, to figures, summary and card."""
    model = ["model", "model_configuration", "experiment"]
    return Pipeline(
        [
            node(nodes.check_model, model, "checked_model"),
            node(
                nodes.count_confusions,
                ["checked_model", "prepared_experiment"],
                "confusion_matrix",
            ),
            node(nodes.check_rounds, _ROUNDS, "checked_rounds"),
            node(nodes.draw_confusions, "confusion_matrix", "confusion_matrix_figure"),
            node(nodes.draw_accuracy, _RUN, "accuracy_curve"),
            node(nodes.summarise, _SUMMARY, "run_summary"),
            node(nodes.fill_card, _CARD, "card"),
            node(nodes.write_card, ["card", "params:figures"], "privacy_card"),
            node(print_result, "run_summary", None),
        ]
    )
