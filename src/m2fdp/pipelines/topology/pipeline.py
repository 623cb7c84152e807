"""The topology pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.topology import nodes


def create_pipeline() -> Pipeline:
    """Parameters to plan, network table and drawing."""
    return Pipeline(
        [
            Node(
                nodes.lay_out_network,
                ["params:algorithm", "params:topology", "params:training", "params:seed"],
                "plan",
                name="lay_out_network",
            ),
            Node(nodes.tabulate_network, "plan", "network_table", name="tabulate_network"),
            Node(nodes.draw, "network_table", "network_drawing", name="draw_network"),
        ]
    )
