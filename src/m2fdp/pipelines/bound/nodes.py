"""Nodes of the bound pipeline."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from m2fdp.algorithms import get_algorithm
from m2fdp.experiments import Experiment
from m2fdp.reporting import bound_figures, tables

logger = logging.getLogger(__name__)


def measure(experiment: Experiment) -> pd.DataFrame:
    """Loss, gradient and curvature along a run."""
    return experiment.measure()


def bound(
    experiment: Experiment, measured: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, Mapping[str, Any]]:
    """The bounds by round, the terms by layer, and the constants with where they come from."""
    bounds = experiment.bound(measured)
    for sentence in bounds.warnings:
        logger.warning(sentence)
    return bounds.by_round, bounds.by_layer, bounds.summary


def print_bound(table: pd.DataFrame) -> None:
    """The bounds after the last round in the terminal."""
    tables.print_bound(table, Console(highlight=False))


def draw_bound(table: pd.DataFrame, algorithm: str, seed: int) -> Figure:
    """Bounds and measured means over the rounds."""
    return bound_figures.convergence_bounds(table, f"{get_algorithm(algorithm).title}, seed {seed}")
