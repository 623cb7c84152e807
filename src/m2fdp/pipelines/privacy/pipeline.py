"""The privacy pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.privacy import nodes


def create_pipeline() -> Pipeline:
    """Plan and manifest to mechanism, ledger, and epsilon over the rounds."""
    return Pipeline(
        [
            Node(
                nodes.calibrate,
                ["plan", "manifest", "params:training", "params:privacy", "params:threat"],
                ["mechanism", "affordable_rounds"],
                name="calibrate",
            ),
            Node(
                nodes.summarise_privacy,
                ["mechanism", "affordable_rounds", "params:training", "params:privacy"],
                "privacy_summary",
                name="summarise_privacy",
            ),
            Node(
                nodes.tabulate_ledger,
                ["mechanism", "affordable_rounds"],
                "privacy_ledger",
                name="tabulate_ledger",
            ),
            Node(nodes.print_ledger, "privacy_ledger", None, name="print_ledger"),
            Node(nodes.draw_ledger, "privacy_ledger", "privacy_ledger_figure", name="draw_ledger"),
            Node(
                nodes.trace_epsilon,
                ["mechanism", "affordable_rounds"],
                "epsilon_over_rounds",
                name="trace_epsilon",
            ),
            Node(
                nodes.draw_epsilon,
                ["epsilon_over_rounds", "params:privacy"],
                "epsilon_over_rounds_figure",
                name="draw_epsilon",
            ),
        ]
    )
