"""Nodes of the topology pipeline."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from m2fdp.config import Config
from m2fdp.experiments import Experiment
from m2fdp.topology.drawing import draw_network
from m2fdp.topology.network import network_table


def tabulate_network(config: Config) -> pd.DataFrame:
    """One row a node of the configured algorithm's network."""
    return network_table(Experiment.from_config(config).plan.network)


def draw(table: pd.DataFrame) -> Figure:
    """The network as a layered tree."""
    return draw_network(table)
