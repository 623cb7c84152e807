"""Nodes of the topology pipeline."""

from __future__ import annotations

import pandas as pd

from m2fdp.algorithms import Plan
from m2fdp.reporting.network_drawing import draw_network
from m2fdp.reporting.pictures import Drawing
from m2fdp.topology.network import Network, network_table


def lay_out_network(plan: Plan) -> Network:
    """The configured algorithm's network."""
    return plan.network


def tabulate_network(network: Network) -> pd.DataFrame:
    """One row a node."""
    return network_table(network)


def draw(table: pd.DataFrame) -> Drawing:
    """The network as a layered tree."""
    return Drawing.of(draw_network, table)
