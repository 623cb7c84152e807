"""The audit pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.audit import nodes


def create_pipeline() -> Pipeline:
    """Experiment to empirical bounds on epsilon beside the ledger's."""
    return Pipeline(
        [
            Node(
                nodes.audit_mechanism,
                "experiment",
                ["audit", "audit_epsilon_lower", "audit_epsilon_upper"],
                name="audit_mechanism",
            ),
            Node(nodes.draw_bounds, "audit", "audit_bounds", name="draw_bounds"),
        ]
    )
