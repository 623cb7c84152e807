"""Sums of privacy losses, as dp-accounting's to the last bit but many times faster.

dp-accounting takes the logarithms of forty moments of a distribution anew for each number of
releases, and looks for epsilon, and for tails to cut, point by point in Python. Here the moments
are kept with the distribution, and what is looked for is first found roughly, for all points at
once; the last steps are dp-accounting's own, in its order.

dp-accounting has no public names for what distributions are made of: this module alone uses
`_pmf_remove`, `_pmf_add` and `_symmetric` of a `PrivacyLossDistribution`, and of its parts
`_discretization`, `_lower_loss`, `_probs`, `_loss_probs`, `_infinity_mass` and
`_pessimistic_estimate`. `tests/core/privacy/test_loss_sums.py` fails when a version has them no
longer, or means something else by them.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf, PLDPmf, SparsePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy import fft, signal
from scipy.special import logsumexp

# exp(-loss) is not yet zero.
_LARGEST_LOSS = 700.0
# Of a rough logarithm, in units of a loss: far more than numpy's exp and log err.
_ROUGHLY = 1e-6


def quick(distribution: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """The same distribution, whose compositions take less time."""
    removed, added = distribution._pmf_remove, distribution._pmf_add
    if distribution._symmetric:
        return PrivacyLossDistribution(_quick(removed))
    return PrivacyLossDistribution(_quick(removed), _quick(added))


def _quick(pmf: PLDPmf) -> PLDPmf:
    spacing, rest = pmf._discretization, (pmf._infinity_mass, pmf._pessimistic_estimate)
    if isinstance(pmf, SparsePLDPmf):
        return _FewLosses(pmf._loss_probs, spacing, *rest)
    return _Losses(spacing, pmf._lower_loss, pmf._probs, *rest)


class _FewLosses(SparsePLDPmf):
    """Those of a few points are quick already, as long as they stay few."""

    def self_compose(self, num_times: int, tail_mass_truncation: float = 1e-15) -> PLDPmf:
        return _quick(super().self_compose(num_times, tail_mass_truncation))

    def compose(self, other: SparsePLDPmf, tail_mass_truncation: float = 0) -> PLDPmf:
        return _quick(super().compose(other, tail_mass_truncation))

    def to_dense_pmf(self) -> PLDPmf:
        return _quick(super().to_dense_pmf())


class _Losses(DensePLDPmf):
    """Chances of the losses (lower_loss + i) times the spacing, and of an infinite one."""

    def self_compose(self, num_times: int, tail_mass_truncation: float = 1e-15) -> _Losses:
        lower, upper = self._bounds(num_times, tail_mass_truncation)
        length = upper - lower + 1
        padded = fft.next_fast_len(max(length, self.size))
        summed = np.real(fft.ifft(fft.fft(self._probs, padded) ** num_times))
        infinite = math.expm1(num_times * math.log1p(-self._infinity_mass))
        return _Losses(
            self._discretization,
            self._lower_loss * num_times + lower,
            np.roll(summed, -lower)[:length].copy(),
            tail_mass_truncation - infinite,
            self._pessimistic_estimate,
        )

    def compose(self, other: DensePLDPmf, tail_mass_truncation: float = 0) -> _Losses:
        self.validate_composable(other)
        summed = signal.fftconvolve(self._probs, other._probs)
        mine, its = self._infinity_mass, other._infinity_mass
        cut, middle, lost = _without_tails(summed, tail_mass_truncation)
        return _Losses(
            self._discretization,
            self._lower_loss + other._lower_loss + cut,
            middle,
            mine + its - mine * its + lost,
            self._pessimistic_estimate,
        )

    def get_epsilon_for_delta(self, delta: float) -> float:
        largest = (self._lower_loss + self.size - 1) * self._discretization
        if self._infinity_mass > delta or largest > _LARGEST_LOSS:
            return super().get_epsilon_for_delta(delta)
        # From the largest loss down, with the rounding of one subtraction after the other.
        losses = np.full(self.size, -self._discretization)
        losses[0] = largest
        losses = losses.cumsum()
        chances = self._probs[::-1]
        upper = np.concatenate([[self._infinity_mass], chances]).cumsum()
        rough = np.concatenate([[0.0], chances * np.exp(-losses)]).cumsum()
        excess, rough = (upper - delta)[:-1], rough[:-1]
        counts = (excess > 0) & (rough > 0)
        reached = np.full(self.size, -np.inf)
        reached[counts] = np.log(excess[counts] / rough[counts])
        surely = np.flatnonzero(reached >= losses + _ROUGHLY)
        end = int(surely[0]) if surely.size else self.size
        lower = np.zeros(end + 1)
        lower[1:] = list(map(math.exp, (-losses[:end]).tolist()))
        lower[1:] *= chances[:end]
        lower = lower.cumsum()
        maybe = np.flatnonzero(reached[:end] >= losses[:end] - _ROUGHLY)
        for point in maybe.tolist():
            if lower[point] > 0 and math.log(excess[point] / lower[point]) >= losses[point]:
                end = point
                break
        if upper[end] <= lower[end] + delta:
            return 0.0
        return math.log((upper[end] - delta) / lower[end])

    def _bounds(self, times: int, tail_mass: float) -> tuple[int, int]:
        """Between which places of the sum all but so much of the chance lies (Chernoff)."""
        lower, upper = 0, (self.size - 1) * times
        for order, log_moment in self._log_moments:
            bound = (times * log_moment + math.log(2 / tail_mass)) / order
            if not math.isfinite(bound):
                continue
            if order > 0:
                upper = min(upper, math.ceil(bound))
            else:
                lower = max(lower, math.floor(bound))
        return lower, upper

    @cached_property
    def _log_moments(self) -> list[tuple[float, float]]:
        """The orders of dp-accounting, and the logarithm of the mean of exp(order times place)."""
        orders = np.concatenate((np.arange(-20, 0), np.arange(1, 21))) / self.size
        places = np.arange(self.size)
        return [(order, _log_mean_exp(places * order, self._probs)) for order in orders]


def _log_mean_exp(values: np.ndarray, chances: np.ndarray) -> float:
    """`scipy.special.logsumexp` of values with weights, in its order, for ordinary numbers."""
    exponents = np.where(chances == 0, -np.inf, values)
    largest = exponents.max()
    at_largest = exponents == largest
    weight = (chances * at_largest).sum()
    exponents[at_largest] = -np.inf
    rest = (chances * np.exp(exponents - largest)).sum()
    if not (weight > 0 and rest >= 0 and math.isfinite(largest)):
        return float(logsumexp(values, b=chances))
    return float(np.log1p(rest / weight) + np.log(weight) + largest)


def _without_tails(chances: np.ndarray, mass: float) -> tuple[int, np.ndarray, float]:
    """What is left if half the mass is cut from either end: how many points were cut before it, the
    chances, with what was before them in the first, and what was after them."""
    if mass == 0:
        return 0, chances, 0.0
    first = _beyond(chances, mass / 2)
    last = max(len(chances) - _beyond(chances[::-1], mass / 2), first + 1)
    before, after = np.sum(chances[:first]), np.sum(chances[last:])
    middle = chances[first:last]
    middle[0] += before
    return first, middle, after


def _beyond(chances: np.ndarray, mass: float) -> int:
    """The first place up to which the chances sum to more than the mass."""
    exceeds = chances.cumsum() > mass
    return int(exceeds.argmax()) if exceeds.any() else len(chances)
