"""Evidence against epsilon that counts whenever one stops: an audit as a sequence of bets.

(epsilon, delta)-DP asks P(hit | present) <= exp(epsilon) P(hit | absent) + delta of every rule, and
the same with the worlds exchanged. A bettor who doubts an epsilon stakes on hits of two rules: scores
above a threshold where the record is present, scores below another where it is absent. A copy with
the record multiplies the wealth by F, one without it by G, whose means obey E[F] E[G] <= 1 if the
epsilon holds. Rules and stakes follow from earlier copies alone, so that the wealth passes 1 / alpha
with a probability of at most alpha, at whatever time (Ville). An epsilon is refuted once it has.

Sequential audits by bets: González et al. 2025 (arXiv 2509.07055), who bet on a kernel's witness;
F and G as products over two samples: Turner et al. 2024 (arXiv 2106.02693).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import NamedTuple

import numpy as np

# Copies of each world that only choose the first rules.
SET_ASIDE = 10
# Epsilons that are doubted, thresholds that are tried for a rule.
_EPSILONS, _THRESHOLDS = 501, 20
# The most of its wealth that a bettor loses by one copy.
_MOST_LOST = 0.9


@dataclass(frozen=True, eq=False)
class Evidence:
    """What copies have shown against each of many epsilons.

    Attributes:
        epsilons: float64 (n,), ascending from zero to the largest that could be refuted.
        stakes: float64 (m,), of bettors who each expect a decision after another number of copies.
        wealths: float64 (n, m), the logarithms of what the bettors have.
        refuted: bool (n,).
        seen: copies of each world.
    """

    delta: float
    alpha: float
    epsilons: np.ndarray
    stakes: np.ndarray
    wealths: np.ndarray
    refuted: np.ndarray
    seen: int

    @property
    def bound(self) -> float:
        """A lower bound on epsilon, wrong with probability at most alpha: the largest epsilon that
        is refuted with all below it."""
        passed = len(self.refuted) if self.refuted.all() else int(self.refuted.argmin())
        return float(self.epsilons[max(passed - 1, 0)])


class _Rules(NamedTuple):
    """For each epsilon the rule that looks best: a hit is a score above the threshold.

    Attributes:
        threshold: float64 (n,).
        false: float64 (n,), how often a hit is false.
        gain, variance: float64 (n,), of hits less exp(epsilon) times false hits and delta.
    """

    threshold: np.ndarray
    false: np.ndarray
    gain: np.ndarray
    variance: np.ndarray


def largest_bound(most: int, delta: float, alpha: float) -> float:
    """The bound that no scores of so many copies can pass: none pays a bettor more than
    ((1 + exp(epsilon)) / (exp(epsilon) + delta))^2."""
    root = alpha ** (-0.5 / max(most - SET_ASIDE, 1))
    return log(max((1 - root * delta) / (root - 1), 1.0))


def no_evidence(most: int, delta: float, alpha: float) -> Evidence:
    """Before the first bet.

    Args:
        most: copies of each world that may be seen; half of the wealth is staked for a decision
            after that many, the rest for earlier ones.
    """
    horizons = [most / 2**i for i in range(max(1, int(np.log2(most / SET_ASIDE))) + 1)]
    shares = np.array([1 / 2] + [1 / 2 / (len(horizons) - 1)] * (len(horizons) - 1))
    return Evidence(
        delta,
        alpha,
        np.linspace(0.0, largest_bound(most, delta, alpha), _EPSILONS),
        np.sqrt(2 * log(1 / alpha) / np.array(horizons)),
        np.tile(np.log(shares), (_EPSILONS, 1)),
        np.zeros(_EPSILONS, dtype=bool),
        SET_ASIDE,
    )


def weigh(evidence: Evidence, absent: np.ndarray, present: np.ndarray) -> Evidence:
    """The evidence after bets on all scores that it has not seen.

    Args:
        absent: float64 (copies,), the scores without the record, those that were seen first.
        present: float64 (copies,), those with it, as many.
    """
    while evidence.seen < len(absent):
        upto = min(evidence.seen + max(1, evidence.seen // 8), len(absent))
        evidence = _bet(evidence, absent[:upto], present[:upto])
    return evidence


def epsilon_shown(
    absent: np.ndarray, present: np.ndarray, delta: float, confidence: float
) -> float:
    """A lower bound on epsilon by scores in an order that says nothing of them."""
    alpha = 1 - confidence
    return weigh(no_evidence(len(absent), delta, alpha), absent, present).bound


def _bet(evidence: Evidence, absent: np.ndarray, present: np.ndarray) -> Evidence:
    """The evidence after all scores, by rules that those choose that were seen before."""
    seen, delta, odds = evidence.seen, evidence.delta, np.exp(evidence.epsilons)
    above = _choose(evidence, absent[:seen], present[:seen])
    below = _choose(evidence, -present[:seen], -absent[:seen])
    weights = [
        np.maximum(rules.gain * np.sqrt(seen / rules.variance) + 0.5, 1e-6)
        / np.sqrt(rules.variance)
        for rules in (above, below)
    ]
    norm = np.sqrt(weights[0] ** 2 * above.variance + weights[1] ** 2 * below.variance)
    expected = [odds * rules.false + delta for rules in (above, below)]
    # What a miss costs: F where the record is present, G where it is absent.
    lost = np.maximum(
        weights[0] * expected[0] + weights[1] * odds * (1 - below.false),
        weights[1] * expected[1] + weights[0] * odds * (1 - above.false),
    )
    stakes = np.minimum(evidence.stakes / norm[:, None], _MOST_LOST / lost[:, None])
    up, down = (stakes * of_rule[:, None] for of_rule in weights)
    rise, fall = up * odds[:, None], down * odds[:, None]
    held = _beyond(present[seen:], above.threshold), _beyond(-present[seen:], below.threshold)
    free = _beyond(-absent[seen:], below.threshold), _beyond(absent[seen:], above.threshold)
    in_present = 1 - up * expected[0][:, None] + fall * below.false[:, None]
    in_absent = 1 - down * expected[1][:, None] + rise * above.false[:, None]
    wealths = (
        evidence.wealths
        + _growth(*held, len(present) - seen, in_present, up, fall)
        + _growth(*free, len(absent) - seen, in_absent, down, rise)
    )
    refuted = np.logaddexp.reduce(wealths, axis=1) >= log(1 / evidence.alpha)
    return replace(evidence, wealths=wealths, refuted=evidence.refuted | refuted, seen=len(absent))


def _choose(evidence: Evidence, absent: np.ndarray, present: np.ndarray) -> _Rules:
    """The rules whose gain is largest beside its deviation. A false hit is counted that was not
    seen, so that rules are not chosen for tails that nobody has seen yet."""
    seen, odds = len(absent), np.exp(evidence.epsilons)[:, None]
    pooled = np.sort(np.concatenate([absent, present]))[::-1]
    ranks = np.unique(np.geomspace(1, 2 * seen - 1, _THRESHOLDS).astype(np.int64))
    thresholds = pooled[ranks]
    hits = _beyond(present, thresholds) / (seen + 1)
    false = (_beyond(absent, thresholds) + 1) / (seen + 1)
    gain = hits - odds * false - evidence.delta
    variance = hits * (1 - hits) + odds**2 * false * (1 - false) + 1 / (seen + 1)
    best = (gain / np.sqrt(variance)).argmax(1)
    rows = np.arange(len(best))
    return _Rules(thresholds[best], false[best], gain[rows, best], variance[rows, best])


def _beyond(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many scores are above each threshold, int64 (thresholds,)."""
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="right")


def _growth(
    hits: np.ndarray,
    misses: np.ndarray,
    copies: int,
    base: np.ndarray,
    won: np.ndarray,
    lost: np.ndarray,
) -> np.ndarray:
    """What copies of one world add to the logarithms of wealths.

    Args:
        hits, misses: int64 (n,), copies that the world's own rule catches, and the other's.
        base: float64 (n, m), the factor of a copy that neither catches.
        won, lost: float64 (n, m), what a hit adds to the factor, and what a miss takes.
    """
    both = np.maximum(hits + misses - copies, 0)  # where thresholds cross
    counts = copies - hits - misses + both, hits - both, misses - both, both
    factors = base, base + won, base - lost, base + won - lost
    return sum(n[:, None] * np.log(f) for n, f in zip(counts, factors, strict=True))
