"""What the noise of all rounds makes of the last model, and steps short enough for little of it.

In units of the step size every aggregate brings the same noise, whatever the step. With each round
it adds up; what gradients answer to it is left out. Of a linear model of inputs of length one, the
deviation of a parameter is that of a score, in the unit of log-odds: a step at which it is one
serves many trees, budgets and data sets (docs/features.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import sqrt

import numpy as np

from m2fdp.convergence.descent import arriving_noise
from m2fdp.core.config import Config
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.schedule.rounds import RunPlan
from m2fdp.core.schedule.schedule import Schedule


def accumulated_noise(
    run_plan: RunPlan, mechanisms: Sequence[Protection], carried: np.ndarray
) -> float:
    """The standard deviation that noise alone gives a parameter of the last model: the root of the
    sum over rounds of (c_t eta^t)^2 V_t, with V_t what round t brings into the mean of all models,
    over eta^2.

    Args:
        mechanisms: one for each network of the plan, in units of the step size.
        carried: c_t, how many times what round t brings is in the last model, for the rounds that
            are trained; see `m2fdp.core.engine.server_rules.AddingRule`.
    """

    @cache
    def brought(network: int, layers: tuple[int | None, ...]) -> float:
        drawn = mechanisms[network]
        return arriving_noise(run_plan.networks[network], drawn.lock_step, drawn.noise, layers)

    variances = [
        (times * plan.step_size) ** 2 * brought(plan.network, plan.layers)
        for plan, times in zip(run_plan.rounds, carried, strict=False)
    ]
    return sqrt(sum(variances))


def shortened(schedule: Schedule, accumulated: float, most: float) -> Schedule:
    """The schedule, its steps shortened by one factor if noise accumulates to more than `most`."""
    if accumulated <= most:
        return schedule
    return replace(schedule, learning_rate=schedule.learning_rate * most / accumulated)


def as_noise_allows(config: Config, accumulated: float, step: float) -> str:
    """How long steps are where noise has a say in it.

    Args:
        accumulated: what noise alone would make of a parameter in steps as scheduled.
        step: the (first) step size that is trained with.
    """
    training = config.training
    scheduled = f"training.learning_rate = {training.learning_rate:g}"
    said = (
        f"{scheduled} stays, with which noise alone would give every parameter a deviation of "
        f"{accumulated:.3g}"
    )
    if step < training.learning_rate:
        said = (
            f"steps of {step:.4g}; with {scheduled} noise alone would give every parameter a "
            f"deviation of {accumulated:.3g}"
        )
    return f"training.accumulated_noise = {training.accumulated_noise:g}: {said}"
