"""The privacy pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.privacy import nodes


def create_pipeline() -> Pipeline:
    """Experiment to promise, ledger, zones, epsilon over the rounds, and a controller's plan."""
    return Pipeline(
        [
            Node(
                nodes.summarise_privacy, "experiment", "privacy_summary", name="summarise_privacy"
            ),
            Node(nodes.tabulate_ledger, "experiment", "privacy_ledger", name="tabulate_ledger"),
            Node(nodes.tabulate_elections, "experiment", "elections", name="tabulate_elections"),
            Node(nodes.tabulate_zones, "experiment", "zones_table", name="tabulate_zones"),
            Node(
                nodes.tell_plan,
                "experiment",
                ["planned_rounds", "planned_rounds_figure"],
                name="tell_plan",
            ),
            Node(
                nodes.print_ledger,
                ["privacy_ledger", "privacy_summary"],
                None,
                name="print_ledger",
            ),
            Node(nodes.draw_ledger, "privacy_ledger", "privacy_ledger_figure", name="draw_ledger"),
            Node(nodes.trace_epsilon, "experiment", "epsilon_over_rounds", name="trace_epsilon"),
            Node(
                nodes.draw_epsilon,
                ["epsilon_over_rounds", "privacy_summary", "params:privacy.epsilon"],
                "epsilon_over_rounds_figure",
                name="draw_epsilon",
            ),
        ]
    )
