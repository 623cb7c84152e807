"""The privacy pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.privacy import nodes


def create_pipeline() -> Pipeline:
    """Plan and manifest to mechanism, ledger, and epsilon over the rounds."""
    return Pipeline(
        [
            Node(
                nodes.plan_rounds,
                ["plan", "dataset", "checked_manifest", "parameters"],
                "run_plan",
                name="plan_rounds",
            ),
            Node(
                nodes.calibrate,
                [
                    "plan",
                    "run_plan",
                    "checked_manifest",
                    "params:training",
                    "params:privacy",
                    "params:threat",
                ],
                ["mechanisms", "mechanism", "affordable_rounds"],
                name="calibrate",
            ),
            Node(
                nodes.summarise_privacy,
                [
                    "mechanism",
                    "affordable_rounds",
                    "checked_manifest",
                    "parameters",
                ],
                "privacy_summary",
                name="summarise_privacy",
            ),
            Node(
                nodes.tabulate_ledger,
                ["mechanism", "affordable_rounds", "parameters"],
                "privacy_ledger",
                name="tabulate_ledger",
            ),
            Node(
                nodes.print_ledger,
                ["privacy_ledger", "privacy_summary"],
                None,
                name="print_ledger",
            ),
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
