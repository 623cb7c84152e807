"""From test scores in two worlds to a lower bound on epsilon."""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
from scipy.stats import beta


class Rule(NamedTuple):
    """Guess that the record is there (`present`), or that it is not, beyond a threshold."""

    present: bool
    threshold: float


def clopper_pearson(hits: int, trials: int, alpha: float) -> tuple[float, float]:
    """Bounds on a probability, each one exceeded with probability at most alpha."""
    low = float(beta.ppf(alpha, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - alpha, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high


def choose_rule(absent: np.ndarray, present: np.ndarray, delta: float, alpha: float) -> Rule:
    """The rule that looks best on scores set aside for the choice."""
    best, best_bound = Rule(True, 0.0), -1.0
    for threshold in np.unique(np.quantile(np.concatenate([absent, present]), _LEVELS)):
        for rule in (Rule(True, float(threshold)), Rule(False, float(threshold))):
            bound = epsilon_bound(rule, absent, present, delta, alpha)
            if bound > best_bound:
                best, best_bound = rule, bound
    return best


def epsilon_bound(
    rule: Rule, absent: np.ndarray, present: np.ndarray, delta: float, alpha: float
) -> float:
    """A lower bound on epsilon, wrong with probability at most 2 alpha for a fixed rule.

    (epsilon, delta)-DP asks TPR <= exp(epsilon) FPR + delta of every test.

    Args:
        absent, present: the scores (n,) without and with the record.
    """
    if rule.present:
        caught, false = (present > rule.threshold), (absent > rule.threshold)
    else:
        caught, false = (absent < rule.threshold), (present < rule.threshold)
    low, _ = clopper_pearson(int(caught.sum()), len(caught), alpha)
    _, high = clopper_pearson(int(false.sum()), len(false), alpha)
    return max(0.0, log((low - delta) / high)) if low > delta else 0.0


def largest_bound(trials: int, delta: float, alpha: float) -> float:
    """The bound of a test without errors: more can't be shown with so many trials."""
    low, _ = clopper_pearson(trials, trials, alpha)
    _, high = clopper_pearson(0, trials, alpha)
    return max(0.0, log((low - delta) / high)) if low > delta else 0.0


_LEVELS = np.linspace(0.0, 1.0, 1001)
