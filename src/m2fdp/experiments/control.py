"""What a run's controller knows before training: prices, noise, and a landscape from no record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan, prod

import numpy as np
import pandas as pd

from m2fdp.algorithms import Plan
from m2fdp.config import Config
from m2fdp.control.controller import (
    Controller,
    build_controller,
    plan_controller,
    plan_round,
    planned,
)
from m2fdp.control.noise import noise_laws
from m2fdp.control.policy import logged
from m2fdp.control.problem import choice_grid, longest
from m2fdp.control.spread import Spread, sample_terms
from m2fdp.convergence.mean_descent import Landscape
from m2fdp.data.features.mapping import PIXELS
from m2fdp.data.features.projection import LONGEST_SQUARED
from m2fdp.errors import InputError
from m2fdp.experiments.promise import threat_of
from m2fdp.models.checks import Shape
from m2fdp.models.registry import Model
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.privacy.calibration import build_mechanism
from m2fdp.privacy.mechanisms import get_mechanism
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.topology.network import Network

PLANNED_COLUMNS = (
    "round",
    "K",
    "s_trusted",
    "s_untrusted",
    "eta",
    "energy_share",
    "delay_share",
    "gap_share",
)


def controller_of(
    config: Config,
    plan: Plan,
    model: Model,
    inputs: tuple[Shape, int],
    shard_sizes: np.ndarray,
    rates: np.ndarray,
) -> Controller:
    """What chooses the rounds, as configured.

    Args:
        plan: the algorithm's.
        inputs: (C, H, W) of what the model takes, and how many classes there are.
        shard_sizes: int64 (N_L,), D_j.
        rates: float64 (N_L,), q_j.

    Raises:
        InputError: nothing is known of beta, or the target of epsilon can't be met.
    """
    control, network, schedule = config.control, plan.network, plan.schedule
    if control.gap == "mechanism":
        prices = prices_of(config, plan, model, inputs, shard_sizes, rates)
        return plan_controller(prices.grid, prices.landscape, prices, schedule, control)
    lock_step = get_mechanism(config.privacy.mechanism).lock_step(network, schedule.round_plans())
    costs = model.n_parameters, float(rates.max()), config.resources, config.privacy
    controller = build_controller(network, lock_step, schedule, *costs, control)
    return replace(controller, smoothness=smoothness_of(config, model, inputs[0]))


def prices_of(
    config: Config,
    plan: Plan,
    model: Model,
    inputs: tuple[Shape, int],
    shard_sizes: np.ndarray,
    rates: np.ndarray,
) -> Spread:
    """What a controller plans by whose gap is of the mechanism's noise.

    For the arguments and errors see `controller_of`.
    """
    control, network, schedule = config.control, plan.network, plan.schedule
    mechanism, norm = get_mechanism(config.privacy.mechanism), config.privacy.clipping_norm
    lock_step = mechanism.lock_step(network, schedule.round_plans())

    def calibrate(taking_part: Network, plans: Sequence[RoundPlan]) -> CalibratedMechanism:
        threat = threat_of(config, plan)
        return build_mechanism(taking_part, shard_sizes, rates, plans, config.privacy, threat)

    landscape, total = _landscape(config, model, inputs), longest(schedule, control)
    prices = model.n_parameters, config.resources, control, total
    grid = choice_grid(network, lock_step, schedule, *prices)
    sampled, most = bool((rates < 1).any()), (total, int(grid.local_steps[-1]))
    every_step = mechanism.noises_every_step
    laws = noise_laws(network, schedule, calibrate, most, sampled, every_step)
    # A record's gradient is at most as long as the clipping norm, and so is a minibatch's.
    variances = (1 - rates) / (rates * shard_sizes) * norm**2
    if not mechanism.clips_records(config.privacy):
        variances = np.where(rates < 1, norm**2, 0.0)
    zeta = landscape.dissimilarity
    samples = sample_terms(network, lock_step, grid.sizes, variances, zeta)
    return Spread(grid, landscape, model.n_parameters, laws, samples)


def _landscape(config: Config, model: Model, inputs: tuple[Shape, int]) -> Landscape:
    """What is known of the losses from no record."""
    shape, n_classes = inputs
    smoothness = smoothness_of(config, model, shape)
    assert smoothness is not None  # the configuration refuses an estimate
    mean_curvature = smoothness
    if model.curvature_sum is not None:
        trace = model.curvature_sum * longest_squared(config, shape)
        mean_curvature = min(smoothness, trace / model.n_parameters)
    zeta = config.control.dissimilarity or config.privacy.clipping_norm
    return Landscape(smoothness, zeta, model.loss_of_equal_scores(n_classes), mean_curvature)


def planned_rounds(controller: Controller | None, most_rounds: int) -> pd.DataFrame:
    """What a controller decides of every round before training; no rows without one.

    Args:
        most_rounds: T.

    Returns:
        `round`, `K`, `s_trusted`, `s_untrusted`; `eta`, NaN where it waits for beta; and of (P),
        for all local steps that are left, `energy_share`, `delay_share` and `gap_share`.
    """
    if controller is None:
        return pd.DataFrame(columns=list(PLANNED_COLUMNS))
    beta = controller.smoothness or nan
    states = (state for state, _ in planned(controller, most_rounds))
    rounds = [plan_round(controller, state, beta)[0] for state in states]
    rows = [{"round": control.round, **logged(control)} for control in rounds]
    return pd.DataFrame(rows)[list(PLANNED_COLUMNS)]


def smoothness_of(config: Config, model: Model, shape: Shape) -> float | None:
    """beta as declared, or as bounded by the range of the features; None where it is estimated.

    Args:
        shape: (C, H, W) of what the model takes.

    Raises:
        InputError: it is to be bounded, and the loss has no known curvature.
    """
    declared = config.control.smoothness
    if declared == "estimated":
        return None
    if declared is not None:
        return float(declared)
    if model.curvature is None:
        raise InputError(
            "control.smoothness",
            None,
            f"has no bound for model.name: {model.name}, whose loss has no known curvature; "
            "declare a number, or use model.name: softmax or logistic",
        )
    return model.curvature * longest_squared(config, shape)


def longest_squared(config: Config, shape: Shape) -> float:
    """The largest squared norm that a record's features can have."""
    mapped = config.features.map != PIXELS or config.dataset.scale == "unit_norm"
    return LONGEST_SQUARED if mapped else float(prod(shape))  # pixels are in [0, 1]
