"""Train, and hold the convergence bound against what is measured."""

import logging
from collections.abc import Mapping
from typing import Any

import pandas as pd
from kedro.pipeline import Pipeline
from matplotlib.figure import Figure

from m2fdp.core.algorithms import get_algorithm
from m2fdp.experiment import Experiment
from m2fdp.pipelines.datasets import node
from m2fdp.reporting.room_figures import convergence_bounds, print_bound

logger = logging.getLogger(__name__)


def bound(
    experiment: Experiment, measured: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, Mapping[str, Any]]:
    """The bounds by round, the terms by layer, and the constants with where they come from."""
    bounds = experiment.bound(measured)
    for sentence in bounds.warnings:
        logger.warning(sentence)
    return bounds.by_round, bounds.by_layer, bounds.summary


def draw_bound(table: pd.DataFrame, algorithm: str, seed: int) -> Figure:
    """Bounds and measured means over the rounds."""
    return convergence_bounds(table, f"{get_algorithm(algorithm).title}, seed {seed}")


def create_pipeline() -> Pipeline:
    """Experiment to bounds, beside what a run measures."""
    bounds = ["bound", "bound_layers", "bound_summary"]
    return Pipeline(
        [
            node(Experiment.measure, "prepared_experiment", "gradient_norms", "measure_gradients"),
            node(bound, ["experiment", "gradient_norms"], bounds),
            node(print_bound, "bound", None),
            node(draw_bound, ["bound", "params:algorithm", "params:seed"], "bound_figure"),
        ]
    )
