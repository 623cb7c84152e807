"""Evidence against epsilon that counts whenever one stops: an audit as a sequence of bets.

A score is the log odds that a copy holds the record, where a fair coin decides. Whoever promises
epsilon says that no copy's odds leave the range from exp(-epsilon) to exp(epsilon). A bettor doubts
it: a copy with the record multiplies the wealth by F, what the score says of the record's chance
over the nearest chance in that range; one without it multiplies it by G, the same of its absence.

If epsilon holds, E[F] + E[G] <= 2 for all scores whatever, so that E[F] E[G] <= 1; a delta, with
which a copy may tell all, is paid for by the most that F and G can be. So the wealth passes
1 / alpha with a probability of at most alpha, at any time (Ville). Then epsilon is refuted.

Audits by bets: González et al. 2025 (arXiv 2509.07055), who bet on a kernel's witness. Here the
bets are on likelihood ratios: of all fair ones they grow fastest where scores are right and the
worlds mirror each other (Turner et al., arXiv 2106.02693).
"""

from dataclasses import dataclass, replace
from math import log

import numpy as np
from scipy.special import expit

# Epsilons that are doubted.
_EPSILONS = 501
# Bettors: what each loses of its wealth at the most by one copy, and whether it also bets that the
# record is absent. Where a delta is large, or a record seldom drawn, that costs more than it pays.
_BETTORS = ((0.5, True), (0.95, True), (0.2, False), (0.95, False))
# How far beyond a doubted epsilon scores are believed.
_BELIEVED = 1.0
# Copies of each world whose bets are worked out together, for the memory's sake.
_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Evidence:
    """What copies have shown against each of many epsilons, float64 (n,), ascending from zero to
    the largest that could be refuted; wealths (n, bettors) are logarithms."""

    delta: float
    alpha: float
    epsilons: np.ndarray
    wealths: np.ndarray
    refuted: np.ndarray

    @property
    def bound(self) -> float:
        """A lower bound on epsilon, wrong with probability at most alpha: the largest epsilon that
        is refuted with all below it."""
        passed = len(self.refuted) if self.refuted.all() else int(self.refuted.argmin())
        return float(self.epsilons[max(passed - 1, 0)])


def largest_bound(copies: int, delta: float, alpha: float) -> float:
    """The bound that no scores of so many copies of each world can pass. No fair bet pays more than
    ((1 + e^epsilon) / (e^epsilon + delta))^2 on a copy of each."""
    if copies < 1:
        return 0.0
    root = alpha ** (-0.5 / copies)
    return log(max((1 - root * delta) / (root - 1), 1.0))


def no_evidence(copies: int, delta: float, alpha: float) -> Evidence:
    """Before the first bet, on so many copies of each world at the most."""
    return Evidence(
        delta,
        alpha,
        np.linspace(0.0, largest_bound(copies, delta, alpha), _EPSILONS),
        np.full((_EPSILONS, len(_BETTORS)), -log(len(_BETTORS))),
        np.zeros(_EPSILONS, dtype=bool),
    )


def weigh(evidence: Evidence, absent: np.ndarray, present: np.ndarray) -> Evidence:
    """The evidence after bets on further copies, by scores float64 (copies,) of copies without and
    with the record. What they are worked out with must be known from copies before."""
    for start in range(0, len(absent), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        evidence = _bet(evidence, absent[some], present[some])
    return evidence


def _bet(evidence: Evidence, absent: np.ndarray, present: np.ndarray) -> Evidence:
    epsilons = evidence.epsilons[:, None]
    believed = epsilons + _BELIEVED
    least, most = expit(-believed) / expit(-epsilons), expit(believed) / expit(epsilons)
    paths = []
    for (lost, both), wealth in zip(_BETTORS, evidence.wealths.T, strict=True):
        lowest = -believed if both else -epsilons
        ratios = (
            _ratio(present, lowest, believed, epsilons),
            _ratio(-absent, -believed, -lowest, epsilons),
        )
        part = lost / (1 - least)
        price = part * evidence.delta * (most - 1) * (1.0 if both else 0.5)
        growth = sum(np.log1p(part * (ratio - 1)) for ratio in ratios) - 2 * np.log1p(price)
        paths.append(wealth[:, None] + growth.cumsum(axis=1))
    passed = np.logaddexp.reduce(paths) >= log(1 / evidence.alpha)
    return replace(
        evidence,
        wealths=np.stack([path[:, -1] for path in paths], axis=1),
        refuted=evidence.refuted | passed.any(axis=1),
    )


def _ratio(
    scores: np.ndarray, lowest: np.ndarray, highest: np.ndarray, epsilons: np.ndarray
) -> np.ndarray:
    """What scores within these limits say of a chance, over the nearest that epsilon allows,
    float64 (epsilons, copies)."""
    chances = expit(np.clip(scores, lowest, highest))
    return chances / expit(np.clip(scores, -epsilons, epsilons))
