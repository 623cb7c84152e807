"""What a run promises, and who learns how much: before any training."""

from kedro.pipeline import Pipeline

from m2fdp.experiment import Experiment
from m2fdp.pipelines.naming import drawing, node
from m2fdp.pipelines.privacy import nodes
from m2fdp.reporting.privacy_figures import ledger_heat_map


def create_pipeline() -> Pipeline:
    """Experiment to promise, ledger, zones, epsilon over the rounds, and a controller's plan."""
    target = "params:privacy.epsilon"
    return Pipeline(
        [
            node(nodes.summarise_privacy, "experiment", "privacy_summary"),
            node(Experiment.ledger, "experiment", "privacy_ledger", "tabulate_ledger"),
            node(Experiment.elections, "experiment", "elections", "tabulate_elections"),
            node(Experiment.zones_table, "experiment", "zones_table", "tabulate_zones"),
            node(nodes.tell_plan, "experiment", ["planned_rounds", "planned_rounds_figure"]),
            node(nodes.print_ledger, ["privacy_ledger", "privacy_summary"], None),
            drawing(ledger_heat_map, "privacy_ledger", "privacy_ledger_figure", "draw_ledger"),
            node(
                Experiment.epsilon_over_rounds, "experiment", "epsilon_over_rounds", "trace_epsilon"
            ),
            node(
                nodes.draw_epsilon,
                ["epsilon_over_rounds", "privacy_summary", target],
                "epsilon_over_rounds_figure",
            ),
        ]
    )
