"""The topology pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.topology import nodes


def create_pipeline() -> Pipeline:
    """Plan to network table and drawing."""
    return Pipeline(
        [
            # A node of its own, so that no table is written before the data have been looked at.
            Node(nodes.lay_out_network, "plan", "network", name="lay_out_network"),
            Node(nodes.tabulate_network, "network", "network_table", name="tabulate_network"),
            Node(nodes.draw, "network_table", "network_drawing", name="draw_network"),
        ]
    )
