"""Nodes of the bound pipeline."""

from __future__ import annotations

import logging
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from m2fdp.algorithms import Plan, get_algorithm
from m2fdp.config import PrivacyConfig, TrainingConfig, parse_config
from m2fdp.convergence.bound import network_terms
from m2fdp.convergence.descent import round_noise
from m2fdp.convergence.measurement import measure_run
from m2fdp.convergence.tables import (
    bound_summary,
    bound_table,
    broken_assumptions,
    estimate_constants,
    layer_table,
)
from m2fdp.data.dataset import Dataset
from m2fdp.data.manifest import shards_of
from m2fdp.pipelines.simulating import configured_process
from m2fdp.privacy.mechanisms import Mechanism
from m2fdp.reporting import bound_figures, tables
from m2fdp.simulation.sampling import sampling_rates

logger = logging.getLogger(__name__)


def measure(
    plan: Plan,
    mechanism: Mechanism,
    affordable_rounds: int,
    dataset: Dataset,
    manifest: pd.DataFrame,
    parameters: dict[str, Any],
) -> tuple[pd.DataFrame, int]:
    """Loss, gradient and curvature along a run of the configuration, and its M."""
    config = parse_config(parameters)
    process = configured_process((plan.network,), (mechanism,), dataset, manifest, config)
    rounds = plan.schedule.round_plans()[:affordable_rounds]
    measured = measure_run(process, rounds, config.training.evaluate_every)
    return measured, process.simulation.model.n_parameters


def bound(
    measured: pd.DataFrame,
    n_parameters: int,
    plan: Plan,
    mechanism: Mechanism,
    manifest: pd.DataFrame,
    training: TrainingConfig,
    privacy: PrivacyConfig,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """The bounds by round, the terms by layer, and the constants with where they come from."""
    network, schedule = plan.network, plan.schedule
    rate = float(sampling_rates(shards_of(manifest).sizes, training.batch_size).max())
    constants = estimate_constants(measured, mechanism, schedule, privacy, n_parameters, rate)
    noise = round_noise(network, mechanism.lock_step, mechanism.noise, schedule, n_parameters)
    terms = network_terms(network, [privacy.alpha] * network.tree.depth)
    summary = bound_summary(measured, constants, noise, mechanism, network, schedule, privacy.alpha)
    for sentence in broken_assumptions(summary):
        logger.warning(sentence)
    return (
        bound_table(measured, terms, constants, noise, schedule),
        layer_table(network, terms),
        summary,
    )


def print_bound(table: pd.DataFrame) -> None:
    """The bounds after the last round in the terminal."""
    tables.print_bound(table, Console(highlight=False))


def draw_bound(table: pd.DataFrame, algorithm: str, seed: int) -> Figure:
    """Bounds and measured means over the rounds."""
    return bound_figures.convergence_bounds(table, f"{get_algorithm(algorithm).title}, seed {seed}")
