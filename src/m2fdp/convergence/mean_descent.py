"""A bound that follows the mean of all models step by step: what a controller plans by.

`m2fdp.convergence.descent` follows the global model from round to round, so that a round's length
eta K has to stay below 1/beta. The mean v of the devices' models moves at every local step, by eta
times the mean of their gradients and by noise xi that is independent of all before. For
eta beta <= 1 smoothness gives (Stich 2019, proof of Theorem 2.2)

    E F(v+) <= F(v) - eta/2 ||grad F(v)||^2 + eta/2 E||grad F(v) - mean_j grad F_j(w_j)||^2
               + E F(u + xi) - F(u),

u being the model before the noise. Gaussian noise of variance s^2 a parameter raises F by at most
s^2/2 times the largest trace of its second derivative, kappa M: all directions count, where
beta M s^2/2 would be that of the steepest one in all of them.

The term in the middle is due to how far models part within a round: k steps after it began

    E||grad F(v) - mean_j grad F_j(w_j)||^2
        <= 2 eta^2 (beta^2 k^2 zeta^2 + min(beta^2, 2 beta kappa) M s^2),

with M s^2 the squared noise over eta^2 that is in v by then. Its second summand is that of losses
of constant curvature: noises of different heads are independent, so that their gradients miss by
what their mean does, and in all directions.

Where only s of the S devices of a lowest server take part, the global model is v in expectation,
and at the round's end misses it by a squared

    eta^2 K^2 (share of the server)^2 (1/s - 1/S) S/(S-1) zeta^2

a server, the variance of a sample without replacement; devices that step together follow their
sample at every step, which adds to how far models part. Summed over the rounds, with W^t = eta^t K,

    sum of W^t ||grad F||^2 / sum of W^t <= 2 (F(w^1) - inf F + sum of what rounds raise)
                                            / sum of W^t.

It assumes, like J, that clipping changes no gradient.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from m2fdp.core.config import PIXELS, Config
from m2fdp.core.errors import InputError
from m2fdp.core.models.checks import Shape
from m2fdp.core.models.registry import Model
from m2fdp.features.projection import LONGEST_SQUARED


@dataclass(frozen=True)
class Landscape:
    """What is known of the devices' losses before training, from no record.

    Attributes:
        smoothness: beta of every F_j, 1/parameter².
        dissimilarity: zeta: at any time in a round, the devices' gradients are so far from their
            mean, in the root of the mean square, over all devices and below every server.
        loss_drop: F(w^1) - inf F, at most.
        mean_curvature: kappa, the trace of F's second derivative over M, at most; beta bounds it.
    """

    smoothness: float
    dissimilarity: float
    loss_drop: float
    mean_curvature: float


@dataclass(frozen=True, eq=False)
class RoundSpread:
    """What a round with K local steps brings, over powers of eta; numbers or arrays.

    Attributes:
        parted: squared distances of the devices' models from their mean, summed over its steps,
            over eta^2.
        carried: squared privacy noise that is in the mean model, summed over its steps, over eta^2.
        scattered: squared noise of minibatches and participation in the global model, over eta^2.
        noise: squared privacy noise that it brings into the global model, over eta^2.
    """

    parted: np.ndarray
    carried: np.ndarray
    scattered: np.ndarray
    noise: np.ndarray


def parted(local_steps: np.ndarray, in_one_step: np.ndarray) -> np.ndarray:
    """`RoundSpread.parted` of K local steps, by the squared distance over eta^2 by which models
    part in one; arguments broadcast."""
    return np.asarray(in_one_step * local_steps * (local_steps - 1) * (2 * local_steps - 1) / 6)


def carried(local_steps: np.ndarray, step: np.ndarray, local: np.ndarray) -> np.ndarray:
    """`RoundSpread.carried` of K local steps, also of minibatches' noise; arguments broadcast.
    `step` and `local` are a mean model's squared noise over eta^2: a step's, all aggregations'."""
    return np.asarray((local_steps - 1) * (step * local_steps / 2 + local))


def sample_variance(
    taking_part: np.ndarray, everybody: np.ndarray, dissimilarity: float
) -> np.ndarray:
    """The squared distance from the mean of S gradients of that of s >= 1 of them, drawn without
    replacement; arguments broadcast."""
    others = np.maximum(everybody - 1, 1)
    variance = (1 / taking_part - 1 / everybody) * everybody / others
    return np.asarray(variance * dissimilarity**2)


def raised(
    landscape: Landscape, spread: RoundSpread, squares: ArrayLike, cubes: ArrayLike
) -> np.ndarray:
    """By how much rounds raise the loss, at most, by the sums of their (eta^t)^2 and (eta^t)^3;
    arguments broadcast."""
    beta, kappa = landscape.smoothness, landscape.mean_curvature
    of_noise = min(beta**2, 2 * beta * kappa)
    drift = beta**2 * spread.parted + of_noise * spread.carried
    bursts = beta * spread.scattered + kappa * spread.noise
    return np.asarray(np.asarray(cubes) * drift + np.asarray(squares) / 2 * bursts)


class StepSums:
    """Sums of powers of step sizes 1/sqrt(t + 1) over consecutive ones of so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        sizes = 1 / np.sqrt(np.arange(1, rounds + 1) + 1.0)
        powers = np.stack([sizes, sizes**2, sizes**3])
        self._sums = np.concatenate([np.zeros((3, 1)), np.cumsum(powers, axis=1)], axis=1)

    def over(self, first: int, last: np.ndarray) -> np.ndarray:
        """Of first, second and third powers over rounds t = first + 1…last: (3, *last.shape)."""
        return np.asarray(self._sums[:, last] - self._sums[:, first, None])


def smoothness_of(config: Config, model: Model, shape: Shape) -> float | None:
    """beta as declared, or as bounded by the range of the features (C, H, W); None where it is
    estimated. An `InputError` where it is to be bounded, and the loss has no known curvature."""
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
