"""Lay out the network: tree, trust and noise plan; table and drawing."""

import pandas as pd
from kedro.pipeline import Pipeline

from m2fdp.core.algorithms import Plan
from m2fdp.core.topology.network import Network
from m2fdp.pipelines.datasets import drawing, node
from m2fdp.reporting.network_drawing import draw_network


def lay_out_network(plan: Plan) -> Network:
    """The configured algorithm's network."""
    return plan.network


def network_table(network: Network) -> pd.DataFrame:
    """One row a node, from the cloud down: node, layer, parent, kind, trusted, adds_noise."""
    tree = network.tree
    rows = []
    for layer, names in enumerate(tree.names):
        kind = "cloud" if layer == 0 else "device" if layer == tree.depth else "server"
        for i, name in enumerate(names):
            rows.append(
                {
                    "node": name,
                    "layer": layer,
                    "parent": tree.names[layer - 1][tree.parents[layer - 1][i]] if layer else "",
                    "kind": kind,
                    "trusted": bool(layer < tree.depth and network.trust[layer][i]),
                    "adds_noise": bool(network.noise[layer][i] > 0),
                }
            )
    return pd.DataFrame(rows)


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
