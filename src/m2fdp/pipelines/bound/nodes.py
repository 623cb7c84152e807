"""Nodes of the bound pipeline."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from m2fdp.algorithms import Plan, get_algorithm
from m2fdp.config import ModelConfig, PrivacyConfig, TrainingConfig
from m2fdp.control.bound import (
    corollary_1,
    largest_step_parameter,
    network_terms,
    noise_factor,
    trust_shares,
)
from m2fdp.control.bound_tables import bound_table, estimate_constants, layer_table
from m2fdp.control.descent import round_noise
from m2fdp.control.measurement import measure_run
from m2fdp.data.dataset import Dataset, features
from m2fdp.data.manifest import shards_of
from m2fdp.models.registry import build_model
from m2fdp.privacy.mechanisms import Mechanism
from m2fdp.reporting import bound_figures
from m2fdp.simulation.engine import Shards, build_simulation
from m2fdp.simulation.sampling import sampling_rates

logger = logging.getLogger(__name__)


def measure(
    plan: Plan,
    mechanism: Mechanism,
    affordable_rounds: int,
    dataset: Dataset,
    manifest: pd.DataFrame,
    model: ModelConfig,
    training: TrainingConfig,
    seed: int,
    device: str,
) -> tuple[pd.DataFrame, int]:
    """Loss, gradient and curvature along a run of the configuration, and its M."""
    shards = shards_of(manifest)
    simulation = build_simulation(
        plan.network,
        mechanism,
        plan.schedule,
        build_model(model, dataset.shape, dataset.n_classes, seed),
        Shards(
            torch.as_tensor(features(dataset.images[shards.samples]), device=device),
            torch.as_tensor(dataset.labels[shards.samples], device=device),
            sizes=shards.sizes,
            rates=sampling_rates(shards.sizes, training.batch_size),
        ),
        seed,
        training.backend,
        training.chunk_size,
    )
    measured = measure_run(simulation, training.evaluate_every, affordable_rounds)
    return measured, simulation.model.n_parameters


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
    alphas = [privacy.alpha] * network.tree.depth
    rate = float(sampling_rates(shards_of(manifest).sizes, training.batch_size).max())
    constants = estimate_constants(measured, mechanism, schedule, privacy, n_parameters, rate)
    noise = round_noise(network, mechanism.lock_step, mechanism.noise, schedule, n_parameters)
    terms = network_terms(network, alphas)
    rounds = int(measured["round"].iloc[-1])
    allowed = largest_step_parameter(constants.smoothness, schedule.local_steps, rounds)
    lawful = schedule.step_size_law == "inverse_sqrt" and schedule.learning_rate <= allowed
    if not lawful:
        logger.warning(
            "Theorem 1 is stated for steps of gamma / sqrt(t + 1) with gamma <= %.3g; this run "
            "takes %g (%s), so its bound is shown for comparison only",
            allowed,
            schedule.learning_rate,
            schedule.step_size_law,
        )
    factor = noise_factor(
        network.tree.depth,
        n_parameters,
        schedule.local_steps,
        rate,
        constants.epsilon,
        constants.delta,
    )
    fanouts = [network.smallest_fanout(layer) for layer in range(1, network.tree.depth)]
    own, passed_on = corollary_1(trust_shares(network.tree, network.trust), fanouts, alphas)
    summary = {
        "constants": asdict(constants),
        "estimated": ["smoothness", "gradient_variance"]
        + ([] if mechanism.private else ["gradient_norm"]),
        "largest_gradient_seen": float(measured["largest_gradient"].max()),
        "step_size": {
            "gamma": schedule.learning_rate,
            "law": schedule.step_size_law,
            "largest_gamma": allowed,
            "within_theorem_1": lawful,
        },
        "noise_of_b": f"Prop. 1 at alpha = {privacy.alpha:g}" if mechanism.private else "none",
        "noise_of_proven_b": {
            "arriving_over_eta_sq": noise.arriving,
            "gathered_over_eta_sq": noise.gathered,
        },
        "corollary_1": {
            "own": float(factor) * own,
            "passed_on": float(factor) * passed_on,
        },
    }
    return (
        bound_table(measured, terms, constants, noise, schedule),
        layer_table(network, terms),
        summary,
    )


def draw_bound(table: pd.DataFrame, algorithm: str, seed: int) -> Figure:
    """Bounds and measured means over the rounds."""
    return bound_figures.convergence_bounds(table, f"{get_algorithm(algorithm).title}, seed {seed}")
