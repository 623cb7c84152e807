"""From test scores in two worlds to a lower bound on epsilon."""

from __future__ import annotations

from functools import cache
from math import log
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest


class Rule(NamedTuple):
    """Guess that the record is there (`present`), or that it is not, beyond a threshold."""

    present: bool
    threshold: float


@cache  # the search for a rule asks for the same counts again and again
def at_least(hits: int, trials: int, alpha: float) -> float:
    """Clopper and Pearson's lower bound on a probability, wrong with probability at most alpha."""
    return float(binomtest(hits, trials, alternative="greater").proportion_ci(1 - alpha).low)


@cache
def at_most(hits: int, trials: int, alpha: float) -> float:
    """Their upper bound, wrong with probability at most alpha."""
    return float(binomtest(hits, trials, alternative="less").proportion_ci(1 - alpha).high)


def choose_rule(
    absent: np.ndarray, present: np.ndarray, delta: float, alpha: float, levels: int = 1001
) -> Rule:
    """The rule, of so many, that looks best on scores set aside for the choice."""
    best, best_bound = Rule(True, 0.0), -1.0
    for threshold in np.unique(
        np.quantile(np.concatenate([absent, present]), np.linspace(0.0, 1.0, levels))
    ):
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
        absent: the scores (n,) without the record.
        present: the scores (n,) with it.
    """
    if rule.present:
        caught, false = (present > rule.threshold), (absent > rule.threshold)
    else:
        caught, false = (absent < rule.threshold), (present < rule.threshold)
    low = at_least(int(caught.sum()), len(caught), alpha)
    high = at_most(int(false.sum()), len(false), alpha)
    return max(0.0, log((low - delta) / high)) if low > delta else 0.0
