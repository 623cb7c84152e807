"""Epsilon of compositions of Gaussian releases whose shift is random.

One record moves a release's mean by a random amount: a mixture of Gaussians against the unmoved
one (Choquette-Choo et al. 2023). Larger shifts dominate smaller ones. All values are upper bounds:
discretised privacy loss distributions are pessimistic, and certain shifts have a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib.metadata import version
from math import exp, expm1, floor, inf, isfinite, log, log1p, log2, prod, sqrt
from typing import TYPE_CHECKING, Literal

# dp-accounting takes a second to import, and runs without sampling need none of it.
if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

ACCOUNTANT = f"dp-accounting {version('dp-accounting')}, privacy loss distributions"

Adjacency = Literal["add_remove", "zero_out", "replace_one"]
Unit = Literal["record", "device"]

# Fourier transforms sum distributions of losses: errors of 1e-14 are nothing beside a larger delta.
_LEAST_DELTA = 1e-10
# Calibrated noise exceeds the least possible by at most this factor.
_CALIBRATION_SLACK = 1e-3
# Privacy losses of one release beyond this are not discretised but bounded in closed form.
_LARGEST_LOSS = 1e5


@dataclass(frozen=True)
class ShiftLaw:
    """How far one record moves the mean of a release.

    Attributes:
        shifts: ascending and distinct, not negative, over the noise standard deviation or in a
            unit that `scaled` turns into it.
        probabilities: the chance of each shift; they sum to one.

    Raises:
        ArithmeticError: one of them is no number, or below 0. So no epsilon is made of such.
    """

    shifts: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(value >= 0 for value in (*self.shifts, *self.probabilities)):
            raise ArithmeticError(f"a record can't move a release by {self}")

    def scaled(self, factor: float) -> ShiftLaw:
        return ShiftLaw(tuple(shift * factor for shift in self.shifts), self.probabilities)

    @property
    def largest(self) -> float:
        return self.shifts[-1]

    @property
    def mean(self) -> float:
        return sum(s * p for s, p in zip(self.shifts, self.probabilities, strict=True))

    @property
    def moved(self) -> float:
        """The probability that the shift is not zero."""
        return sum(p for s, p in zip(self.shifts, self.probabilities, strict=True) if s > 0)


Composition = tuple[tuple[ShiftLaw, int], ...]


def subsampled(sampling_rate: float, shift: float = 1.0) -> ShiftLaw:
    """The law of a record that is drawn with this rate and then moves the release by `shift`."""
    if sampling_rate == 1.0:
        return ShiftLaw((shift,), (1.0,))
    return ShiftLaw((0.0, shift), (1.0 - sampling_rate, sampling_rate))


def scaled(composition: Composition, factor: float) -> Composition:
    """The composition with every shift times a factor."""
    return tuple((law.scaled(factor), count) for law, count in composition)


def chance_of_use(composition: Composition) -> float:
    """That the record moves any of the releases."""
    return 1.0 - prod((1.0 - law.moved) ** count for law, count in composition)


@lru_cache(maxsize=4096)
def epsilon(composition: Composition, delta: float, adjacency: Adjacency = "add_remove") -> float:
    """An upper bound on epsilon at delta; never NaN, infinite only for releases without noise.

    Args:
        composition: laws over the noise standard deviation, each with its number of releases.
        delta: number in (0, 1). Below 1e-10 sampling is not credited.
        adjacency: what neighbours are. For `replace_one` every law must be `subsampled`: the two
            records then move the mean in opposite directions.
    """
    releases = tuple((law, count) for law, count in composition if count and law.largest > 0)
    if not releases:
        return 0.0
    if any(law.largest == inf for law, _ in releases):
        return inf
    bound = _without_amplification(releases, delta, 2.0 if adjacency == "replace_one" else 1.0)
    if all(law.moved == 1.0 and len(law.shifts) == 1 for law, _ in releases):
        return bound
    if max(_loss_range(law) for law, _ in releases) > _LARGEST_LOSS or delta < _LEAST_DELTA:
        return bound
    return min(bound, _by_loss_distribution(releases, delta, adjacency))


@lru_cache(maxsize=4096)
def least_noise(
    composition: Composition, target: float, delta: float, adjacency: Adjacency = "add_remove"
) -> float:
    """The least noise (up to 0.1 %, never too little) for which epsilon is at most the target, in
    the unit of the laws.

    If delta covers the chance that the record is ever used, no noise at all would meet the target.
    The result is then the noise of one certain release.
    """
    from scipy.optimize import brentq

    largest = max((law.largest for law, count in composition if count), default=0.0)
    if largest == 0:
        return 0.0
    if chance_of_use(composition) <= delta:
        composition = ((subsampled(1.0, largest), 1),)

    def overspend(log_noise: float) -> float:
        spent = epsilon(scaled(composition, exp(-log_noise)), delta, adjacency)
        return log(max(spent, 1e-12) / target)

    low = high = log(_first_guess(composition, target, delta))
    while not overspend(high) <= 0:
        high += 0.1
    while overspend(low) <= 0:
        low -= 0.1
    root = brentq(overspend, low, high, xtol=_CALIBRATION_SLACK / 8)
    # A hair more, so that rounding later can't overspend. The grid of losses changes with the
    # noise, so that a hair more of it may cost more: what is returned is what was verified.
    hair = 1e-9
    while not overspend(root + hair) <= 0:
        root += _CALIBRATION_SLACK / 4
    return exp(root + hair)


def _without_amplification(releases: Composition, delta: float, factor: float) -> float:
    """The largest shift at every release: one Gaussian (Balle and Wang 2018, Theorem 8)."""
    from scipy.optimize import brentq

    mu = factor * sqrt(sum(count * law.largest**2 for law, count in releases))
    # mu^2/2-zCDP (Bun and Steinke 2016, Prop. 1.3): never less, and a hair more for large mu.
    bound = mu**2 / 2 + mu * sqrt(2 * log(1 / delta))
    if mu >= 1e3:
        return bound
    if _gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    root = brentq(lambda eps: _gaussian_delta(mu, eps) - delta, 0.0, bound, xtol=1e-12)
    step = 1e-12
    while _gaussian_delta(mu, root) > delta and root < bound:
        root, step = root + step, 2 * step
    return min(root, bound)


def _gaussian_delta(mu: float, eps: float) -> float:
    """Balle and Wang 2018, eq. 6: Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu)."""
    from scipy.special import log_ndtr, ndtr

    return float(ndtr(mu / 2 - eps / mu) - exp(min(eps + log_ndtr(-mu / 2 - eps / mu), 0.0)))


def _by_loss_distribution(releases: Composition, delta: float, adjacency: Adjacency) -> float:
    spacing, each = _grid(releases), _loss_distribution
    parts = (each(law, spacing, adjacency).self_compose(count) for law, count in releases)
    total = reduce(lambda all_before, part: all_before.compose(part), parts)
    value = float(total.get_epsilon_for_delta(delta))
    return value if isfinite(value) else inf


@lru_cache(maxsize=256)
def _loss_distribution(
    law: ShiftLaw, spacing: float, adjacency: Adjacency
) -> PrivacyLossDistribution:
    """Of one release; kept, as compositions of all lengths ask for it."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    from m2fdp.core.privacy.mixtures import mixture_distribution

    # One shift, certain or not. (As a mixture, a certain one can defeat dp-accounting's rounding.)
    if sum(shift > 0 for shift in law.shifts) == 1:
        relation = NeighboringRelation.ADD_OR_REMOVE_ONE
        if adjacency == "replace_one":
            relation = NeighboringRelation.REPLACE_ONE
        return privacy_loss_distribution.from_gaussian_mechanism(
            1.0 / law.largest,
            sampling_prob=law.probabilities[-1],
            value_discretization_interval=spacing,
            neighboring_relation=relation,
        )
    if adjacency == "replace_one":
        raise ValueError("replace_one is proven for subsampled laws only")
    return mixture_distribution(law.shifts, law.probabilities, spacing)


def _grid(releases: Composition) -> float:
    """The spacing of privacy losses: fine enough to be tight, coarse enough to take seconds.

    Any spacing gives an upper bound. Two thousand points over one release's losses are tight; a
    rare loss needs more, at most 1e5, and fewer for losses beyond 30: epsilon is in the tens there.
    The composed distribution should have some million points at most. A power of two lets
    compositions of different lengths share one release's distribution.
    """
    total, spacing = 0.0, 0.0
    for law, count in releases:
        loss = _loss_range(law)
        fine = min(loss / 2e3, max(law.moved / 10, loss / 1e5, loss**3 / 1e8))
        spacing = max(spacing, fine)
        total += count * _mean_loss(law) + 10 * law.largest * sqrt(count * law.moved)
    return 2.0 ** floor(log2(max(spacing, total / 5e6)))


def _loss_range(law: ShiftLaw) -> float:
    return law.largest**2 / 2 + 9 * law.largest


def _mean_loss(law: ShiftLaw) -> float:
    """A bound on the mean privacy loss of one release, with and without amplification."""
    plain = law.moved * law.largest**2 / 2
    return min(plain, law.moved**2 * expm1(min(law.largest**2, 50.0)))


def gaussian_shift(target: float, delta: float) -> float:
    """How many standard deviations a record moves a Gaussian of epsilon `target` at delta by."""
    from scipy.optimize import brentq

    return float(brentq(lambda shift: _gaussian_delta(shift, target) - delta, 1e-9, 1e6))


def _first_guess(composition: Composition, target: float, delta: float) -> float:
    """Noise that the central limit theorem of Gaussian DP suggests; a start, never a claim."""
    mu = gaussian_shift(target, delta)
    sampled = sum(count * law.mean**2 for law, count in composition)
    largest = max(law.largest for law, _ in composition)
    moved = max(law.moved for law, _ in composition)
    # Solves sum of (q shift)^2 (exp(1/z^2) - 1) = mu^2 for noise z in units of the largest shift.
    ratio = mu**2 / (sampled / largest**2)
    return largest / sqrt(log1p(ratio)) if moved < 1 else sqrt(sampled) / mu
