"""The attack pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.attack import nodes
from m2fdp.reporting.attack_figures import attack_figure


def create_pipeline() -> Pipeline:
    """Experiment to what an observer has taken, beside the ledger's epsilon."""
    return Pipeline(
        [
            Node(
                nodes.attack_run,
                ["prepared_experiment", "attack_results"],
                "attack",
                name="attack_run",
            ),
            Node(attack_figure, "attack", "attack_figure", name="draw_attack"),
        ]
    )
