"""Epsilon of Poisson-subsampled Gaussian mechanisms, by privacy loss distributions.

Neighbours differ by adding or removing one record. All values are upper bounds: the
discretised privacy loss distribution of dp-accounting is pessimistic. Whole shards (q = 1) need
no discretisation: their releases compose to one Gaussian, whose curve is known in closed form.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from math import exp, inf, log, log1p, sqrt

import dp_accounting
from dp_accounting.pld import PLDAccountant
from scipy.optimize import brentq
from scipy.stats import norm

ACCOUNTANT = f"dp-accounting {version('dp-accounting')}, privacy loss distributions"

# Calibrated noise exceeds the least possible by at most this factor.
_CALIBRATION_SLACK = 1e-3


@lru_cache(maxsize=4096)
def gaussian_epsilon(
    noise_multiplier: float, sampling_rate: float, compositions: int, delta: float
) -> float:
    """Epsilon of `compositions` Gaussian releases of a Poisson sample, at delta.

    Args:
        noise_multiplier: z, noise standard deviation over sensitivity; 0 gives infinity.
        sampling_rate: q in (0, 1].
        compositions: the number of releases; 0 gives 0.
        delta: in (0, 1).
    """
    if compositions == 0:
        return 0.0
    if noise_multiplier == 0:
        return inf
    if sampling_rate == 1.0:
        # Balle and Wang 2018, Theorem 8.
        return dp_accounting.get_epsilon_gaussian(noise_multiplier / sqrt(compositions), delta)
    accountant = PLDAccountant(
        dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        value_discretization_interval=_grid(noise_multiplier, sampling_rate),
    )
    release = dp_accounting.GaussianDpEvent(noise_multiplier)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(sampling_rate, release), compositions)
    return float(accountant.get_epsilon(delta))


def _grid(noise_multiplier: float, sampling_rate: float) -> float:
    """The spacing of privacy losses: coarser where losses are large and a fine grid is slow.

    Both spacings give upper bounds; where the coarse one is used it costs below 0.1 % (measured).
    """
    return 1e-3 if noise_multiplier < 2 and sampling_rate >= 0.02 else 1e-4


@lru_cache(maxsize=4096)
def least_noise_multiplier(
    sampling_rate: float, compositions: int, epsilon: float, delta: float
) -> float:
    """The least z (up to 0.1 %, never too small) whose `gaussian_epsilon` is at most epsilon."""

    def overspend(log_z: float) -> float:
        spent = gaussian_epsilon(exp(log_z), sampling_rate, compositions, delta)
        return log(max(spent, 1e-12) / epsilon)

    low = high = log(_first_guess(sampling_rate, compositions, epsilon, delta))
    while overspend(high) > 0:
        high += 0.1
    while overspend(low) <= 0:
        low -= 0.1
    root = brentq(overspend, low, high, xtol=_CALIBRATION_SLACK / 8)
    while overspend(root) > 0:
        root += _CALIBRATION_SLACK / 4
    # A hair more, so that rounding a multiplier later can't overspend.
    return exp(root) * (1 + 1e-9)


def _first_guess(sampling_rate: float, compositions: int, epsilon: float, delta: float) -> float:
    """The z that the central limit theorem of Gaussian DP suggests; a start, never a claim."""

    def gdp_delta(mu: float) -> float:
        tail = norm.logcdf(-epsilon / mu - mu / 2)
        return norm.cdf(-epsilon / mu + mu / 2) - exp(min(epsilon + tail, 0.0))

    mu = brentq(lambda value: gdp_delta(value) - delta, 1e-6, 100.0)
    ratio = (mu / sampling_rate) ** 2 / compositions
    return 1 / sqrt(log1p(ratio))
