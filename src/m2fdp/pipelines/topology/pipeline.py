"""The topology pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.data.pipeline import configured
from m2fdp.pipelines.topology import nodes


def create_pipeline() -> Pipeline:
    """Parameters to network table and drawing."""
    return configured() + Pipeline(
        [
            # A node of its own, so that no table is written before the data have been looked at.
            Node(nodes.lay_out_network, "config", "network", name="lay_out_network"),
            Node(nodes.tabulate_network, "network", "network_table", name="tabulate_network"),
            Node(nodes.draw, "network_table", "network_drawing", name="draw_network"),
        ]
    )
