"""The bound pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.bound import nodes


def create_pipeline() -> Pipeline:
    """Experiment to bounds, beside what a run measures."""
    return Pipeline(
        [
            Node(nodes.measure, "prepared_experiment", "gradient_norms", name="measure_gradients"),
            Node(
                nodes.bound,
                ["experiment", "gradient_norms"],
                ["bound", "bound_layers", "bound_summary"],
                name="bound",
            ),
            Node(nodes.print_bound, "bound", None, name="print_bound"),
            Node(
                nodes.draw_bound,
                ["bound", "params:algorithm", "params:seed"],
                "bound_figure",
                name="draw_bound",
            ),
        ]
    )
