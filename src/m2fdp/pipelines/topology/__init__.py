"""Lay out the network: tree, trust and noise plan; table and drawing."""

from kedro.pipeline import Pipeline

from m2fdp.core.algorithms import Plan
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.tables import network_table
from m2fdp.pipelines.datasets import drawing, node
from m2fdp.reporting.network_drawing import draw_network


def lay_out_network(plan: Plan) -> Network:
    """The configured algorithm's network."""
    return plan.network


def create_pipeline() -> Pipeline:
    """Plan to network table and drawing."""
    return Pipeline(
        [
            # A node of its own, so that no table is written before the data have been looked at.
            node(lay_out_network, "plan", "network"),
            node(network_table, "network", "network_table", "tabulate_network"),
            drawing(draw_network, "network_table", "network_drawing", "draw_network"),
        ]
    )
