"""The bound that the steps of J's proof of Theorem 1 give when each is carried through.

Theorem 1 as printed lacks factors and does not follow from its own condition on the step size
(see `m2fdp.convergence.bound`). The same steps, under the same assumptions, for any step sizes and
for the noise that a run really adds. With E over all that is drawn in round t, eq. 34 gives

    E F(w^(t+1)) - F(w^(t)) <= -eta <grad F, sum_k E g_k> + beta/2 E||eta sum_k g_k - n||^2,

where g_k is the devices' mean gradient at step k and n the round's noise, of mean zero. By eq. 84,
smoothness and ||a + b||^2 <= 2||a||^2 + 2||b||^2 (n moves later gradients, so the two are
correlated, which eq. 35 drops),

    eta K/2 ||grad F||^2 <= F(w^(t)) - E F(w^(t+1)) + eta^3 beta^2 K (K-1)(2K-1)/6 H
                            + eta beta^2 K V + eta^2 beta K^2 H + beta N,

with H = G^2 + sigma^2, V the squared noise that a device's model has gathered in local
aggregations and N that of the global model. Both are eta^2 times what the mechanism draws. Summed
over t and divided by the sum of eta K/2, this bounds the mean of ||grad F(w^(t))||^2 in which
round t counts eta^t; for a constant step size that is the plain mean of Theorem 1.

It assumes, like J, that minibatch gradients are unbiased: that clipping changes none of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt

import numpy as np

from m2fdp.convergence.bound import Bound, Constants
from m2fdp.core.config import Config
from m2fdp.core.privacy.mechanisms import LockStep, Noise, Protection
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.schedule.rounds import RunPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import Network


@dataclass(frozen=True)
class RoundNoise:
    """Expected squared norms of one round's noise, in units of eta^2.

    Attributes:
        arriving: N, of the noise in the global model at the round's end.
        gathered: V, at most, of the noise in a device's model before it, in the mean over devices.
    """

    arriving: float
    gathered: float


def round_noise(
    network: Network, lock_step: LockStep, noise: Noise, schedule: Schedule, n_parameters: int
) -> RoundNoise:
    """What a mechanism draws in one round, step by step and message by message."""
    head_shares, variances = _drawn_at_steps(network, lock_step, noise)
    arriving = arriving_noise(network, lock_step, noise, schedule.layers())
    gathered = schedule.local_steps * float(head_shares @ variances)
    for top in schedule.layers():
        if top is not None and top > 0:
            gathered += float(network.shares(top, 0) @ _drawn_in_messages(network, noise, top))
    return RoundNoise(n_parameters * arriving, n_parameters * gathered)


def arriving_noise(
    network: Network, lock_step: LockStep, noise: Noise, layers: Sequence[int | None]
) -> float:
    """The variance of the noise that some local steps bring into the mean of all models, a
    parameter, over eta^2.

    Args:
        layers: the layer up to which models travel after each step, or None.
    """
    head_shares, variances = _drawn_at_steps(network, lock_step, noise)
    arriving = len(layers) * float(head_shares**2 @ variances)
    tops = [top for top in layers if top is not None]
    shares = {top: network.shares(top, 0) for top in set(tops)}
    for top in tops:
        arriving += float(shares[top] ** 2 @ _drawn_in_messages(network, noise, top))
    return arriving


def _drawn_at_steps(
    network: Network, lock_step: LockStep, noise: Noise
) -> tuple[np.ndarray, np.ndarray]:
    """The share of each group's head in the global model, and the expected variance of what it
    draws a step."""
    depth, sent, nodes = network.tree.depth, network.odds, lock_step.nodes.tolist()
    shares = [network.shares(layer, 0) for layer in range(depth + 1)]
    # How often a device's message is sent at all.
    odds = np.array([sent[node] if layer == depth else 1.0 for layer, node in nodes])
    return np.array([shares[layer][node] for layer, node in nodes]), noise.steps**2 * odds


def _drawn_in_messages(network: Network, noise: Noise, top: int) -> np.ndarray:
    """The variance in the models of layer `top` of what messages on their way there carry, and of
    what their broadcasts do: (N_top,)."""
    drawn = mean_variances(network, noise.messages, network.odds, top)[0]
    return drawn + (noise.broadcasts[top] if top > 0 else noise.messages[0]) ** 2


def descent_bound(
    constants: Constants, noise: RoundNoise, step_sizes: np.ndarray, loss_drop: np.ndarray
) -> Bound:
    """The bound after each of some numbers of rounds.

    Args:
        step_sizes: eta^t for t = 1…T, (T,).
        loss_drop: F(w^(1)) - F(w^(t+1)) for t = 1…T, (T,).

    Returns:
        By term, (T,): entry t-1 bounds the mean, weighted by eta, over the first t rounds.
    """
    beta, steps = constants.smoothness, constants.local_steps
    energy = constants.gradient_norm**2 + constants.gradient_variance
    elapsed = np.cumsum(step_sizes)
    squares = np.cumsum(step_sizes**2) / elapsed
    cubes = np.cumsum(step_sizes**3) / elapsed
    return Bound(
        a1=2 * np.asarray(loss_drop) / (steps * elapsed),
        a2=energy
        * (2 * beta * steps * squares + beta**2 * (steps - 1) * (2 * steps - 1) / 3 * cubes),
        b=2 * beta**2 * noise.gathered * cubes + 2 * beta * noise.arriving / steps * squares,
    )


def accumulated_noise(
    run_plan: RunPlan, mechanisms: Sequence[Protection], carried: np.ndarray
) -> float:
    """The standard deviation that noise alone gives a parameter of the last model.

    It is the root of the sum over rounds of (c_t eta^t)^2 V_t, with V_t what round t brings into
    the mean of all models, over eta^2. What gradients answer to noise is left out. In a
    linear model of inputs of length one it is the deviation of a score, in log-odds. A step size
    for which it is one serves many trees, budgets and data sets (docs/features.md).

    Args:
        mechanisms: one for each network of the plan, in units of the step size.
        carried: c_t, how many times what round t brings is in the last model, for the rounds that
            are trained; see `m2fdp.core.engine.rules`.
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
    """How long steps are where noise has a say, in words: it alone would give a parameter the
    deviation `accumulated` in steps as scheduled; the first trained step is `step`."""
    training = config.training
    alone = f"noise alone would give every parameter a deviation of {accumulated:.3g}"
    said = f"training.learning_rate = {training.learning_rate:g}"
    if step < training.learning_rate:
        said = f"steps of {step:.4g}; with {said} {alone}"
    else:
        said = f"{said} stays, with which {alone}"
    return f"training.accumulated_noise = {training.accumulated_noise:g}: {said}"
