"""Nodes of the topology pipeline."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from m2fdp.algorithms import Plan, build_plan
from m2fdp.config import Config, TopologyConfig, TrainingConfig
from m2fdp.topology.drawing import draw_network
from m2fdp.topology.network import network_table


def lay_out_network(
    algorithm: str, topology: TopologyConfig, training: TrainingConfig, seed: int
) -> Plan:
    """The plan of the configured algorithm."""
    return build_plan(Config(algorithm=algorithm, topology=topology, training=training, seed=seed))


def tabulate_network(plan: Plan) -> pd.DataFrame:
    """One row a node."""
    return network_table(plan.network)


def draw(table: pd.DataFrame) -> Figure:
    """The network as a layered tree."""
    return draw_network(table)
