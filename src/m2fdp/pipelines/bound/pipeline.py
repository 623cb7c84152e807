"""The bound pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.bound import nodes


def create_pipeline() -> Pipeline:
    """Plan, mechanism, data set and manifest to bounds, beside what a run measures."""
    return Pipeline(
        [
            Node(
                nodes.measure,
                [
                    "plan",
                    "mechanism",
                    "affordable_rounds",
                    "dataset",
                    "checked_manifest",
                    "parameters",
                ],
                ["gradient_norms", "n_parameters"],
                name="measure_gradients",
            ),
            Node(
                nodes.bound,
                [
                    "gradient_norms",
                    "n_parameters",
                    "plan",
                    "mechanism",
                    "checked_manifest",
                    "params:training",
                    "params:privacy",
                ],
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
