"""LiRA (Carlini et al. 2022): was a record among those that a model was trained with?

Every target is in half of the shadow models, and half of the shadows show how its score is
distributed with and without it. The other half is put to the test: the log likelihood ratio of two
Gaussians with the target's own means and one spread.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import binomtest, rankdata
from torch import Tensor

from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.accounting import epsilon
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.releases import Release

# False positive rates at which the share of members that are found is reported.
RATES = (0.01, 0.001)
# Further deltas at which epsilon bounds the power of every test; each gives a bound by itself.
_DELTAS = (1e-7, 1e-6, 1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.2, 0.4)
# Thresholds that are tried for a bound on epsilon.
_LEVELS = 101
# Where curves are drawn, and the bound on the area is added up.
_GRID = np.unique(np.concatenate([np.zeros(1), np.geomspace(1e-4, 1.0, 161)]))

# From false positive rates to the largest true positive rates that there can be.
Power = Callable[[np.ndarray], np.ndarray]


def deal_targets(shadows: int, targets: int, stream: np.random.Generator) -> np.ndarray:
    """Which targets each shadow is trained with: bool (shadows, targets). Of every quarter of the
    shadows each target is in exactly half."""
    quarter = shadows // 4
    half = np.arange(quarter)[:, None] < quarter // 2
    quarters = [stream.permuted(np.tile(half, targets), axis=0) for _ in range(4)]
    return np.concatenate(quarters)


def confidences(model: Model, weights: Tensor, features: Tensor, labels: Tensor) -> np.ndarray:
    """float64 (n,): of each record the score of its label over the log-sum-exp of all others'; of a
    softmax the logit of its label's probability."""
    with torch.no_grad():
        scores = model.scores(weights, features).double()
    of_label = scores.gather(1, labels[:, None])[:, 0]
    of_others = scores.scatter(1, labels[:, None], float("-inf")).logsumexp(1)
    return (of_label - of_others).cpu().numpy()


def scores_of(values: np.ndarray, members: np.ndarray) -> np.ndarray:
    """The log likelihood ratios of the second half of the shadows, float64 (shadows/2, targets),
    by each record's confidence as an observer sees it, and by membership in the first half."""
    half = len(values) // 2
    fitted, present = values[:half], members[:half]
    mean_present = np.where(present, fitted, 0.0).sum(0) / present.sum(0)
    mean_absent = np.where(present, 0.0, fitted).sum(0) / (~present).sum(0)
    means = np.where(present, mean_present, mean_absent)
    spread = (fitted - means).var(0) * half / max(half - 2, 1)
    # Few shadows say little of each spread: half of it is that of all targets.
    variance = np.maximum((spread + spread.mean()) / 2, 1e-300)
    tested = values[half:]
    return ((tested - mean_absent) ** 2 - (tested - mean_present) ** 2) / (2 * variance)


def judge(
    scores: np.ndarray, members: np.ndarray, power: Power, delta: float, confidence: float
) -> dict[str, Any]:
    """How well scores float64 (tests, targets), of shadows that the test was not fitted to, tell
    members, beside what the ledger allows.

    Bounds at a confidence take guesses for independent. Those of one shadow share its model.

    Returns:
        `auc`, the area under the curve (0.5 is guessing), and `tpr_at_…`, the share of members that
        are found at each of `RATES`; `auc_most` and `tpr_most_at_…`, what the ledger allows;
        `epsilon_lower`, a bound by a rule chosen on other shadows; `room`, how far the ledger's
        bounds pass the lower ends of what was found, where they do so least: below zero the ledger
        is refuted; `curve`, (3, n), false and true positive rates, and the ledger's bound.
    """
    present, absent = scores[members], scores[~members]
    ranks = rankdata(np.concatenate([absent, present]))
    wins = ranks[len(absent) :].sum() - len(present) * (len(present) + 1) / 2
    tpr = _found_at(present, absent, np.concatenate([_GRID, np.array(RATES)]))
    choosing = np.arange(len(scores)) % 2 == 0
    alpha = (1 - confidence) / 2
    halves = ((scores[rows], members[rows]) for rows in (choosing, ~choosing))
    chosen, tested = ((values[~there], values[there]) for values, there in halves)
    rule = choose_rule(*chosen, delta, alpha, levels=_LEVELS)
    bound = power(_GRID)
    auc = float(wins / (len(present) * len(absent)))
    # Never too small: the bound rises, so that its right ends are above it.
    auc_most = float(min(1.0, (np.diff(_GRID) * bound[1:]).sum()))
    deviation = sqrt((len(ranks) + 1) / (12 * len(present) * len(absent)))  # of guesses
    rooms = [auc_most - (auc - float(ndtri(1 - alpha)) * deviation)]
    found: dict[str, Any] = {"auc": auc, "auc_most": auc_most}
    at_rates, most = tpr[len(_GRID) :].tolist(), power(np.array(RATES)).tolist()
    for rate, share, share_most in zip(RATES, at_rates, most, strict=True):
        found |= {f"tpr_at_{rate:g}": share, f"tpr_most_at_{rate:g}": share_most}
        highest_fpr = at_most(int(rate * len(absent)), len(absent), alpha)
        lowest_tpr = at_least(round(share * len(present)), len(present), alpha)
        rooms.append(float(power(np.array([highest_fpr]))[0]) - lowest_tpr)
    return found | {
        "epsilon_lower": epsilon_bound(rule, *tested, delta, alpha),
        "room": min(rooms),
        "curve": [_GRID.tolist(), tpr[: len(_GRID)].tolist(), bound.tolist()],
    }


def _found_at(present: np.ndarray, absent: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """The share of members above thresholds that at most these shares of others are above."""
    descending = np.sort(absent)[::-1]
    allowed = np.floor(rates * len(absent)).astype(np.int64)
    thresholds = np.append(descending, -np.inf)[np.minimum(allowed, len(absent))]
    return 1.0 - np.searchsorted(np.sort(present), thresholds, side="right") / len(present)


def power_of(ledger: Ledger, kinds: Sequence[str], rounds: int) -> Power:
    """What the ledger allows observers of these kinds: the largest over positions of the least,
    over several pairs of epsilon and delta, of exp(epsilon) FPR + delta and what it says with the
    two worlds exchanged."""

    def pairs_of(line: Release) -> Iterator[tuple[float, float]]:
        composition, spent = ledger.composition(line, rounds), line.account.spent
        for delta in (ledger.delta, *_DELTAS):
            yield spent + epsilon(composition, delta, ledger.adjacency), delta

    curves = {tuple(pairs_of(line)) for line in ledger.lines if line.kind in kinds}

    def power(rates: np.ndarray) -> np.ndarray:
        highest = np.zeros_like(rates) if curves else np.ones_like(rates)
        for pairs in curves:
            of_line = np.ones_like(rates)
            for value, delta in pairs:
                grown = np.exp(min(value, 700.0))
                one_way = np.where(rates > 0, grown * rates, 0.0) + delta
                other_way = 1.0 - (1.0 - delta - rates) / grown
                of_line = np.minimum(of_line, np.minimum(one_way, other_way))
            highest = np.maximum(highest, of_line)
        return np.clip(highest, rates, 1.0)

    return power


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
    both = np.concatenate([absent, present])
    thresholds = np.unique(np.quantile(both, np.linspace(0.0, 1.0, levels))).tolist()
    rules = (Rule(way, threshold) for threshold in thresholds for way in (True, False))
    return max(rules, key=lambda rule: epsilon_bound(rule, absent, present, delta, alpha))


def epsilon_bound(
    rule: Rule, absent: np.ndarray, present: np.ndarray, delta: float, alpha: float
) -> float:
    """A lower bound on epsilon, wrong with probability at most 2 alpha for a fixed rule.

    (epsilon, delta)-DP asks TPR <= exp(epsilon) FPR + delta of every test. Scores (n,) are without
    the record (`absent`) and with it.
    """
    if rule.present:
        caught, false = (present > rule.threshold), (absent > rule.threshold)
    else:
        caught, false = (absent < rule.threshold), (present < rule.threshold)
    low = at_least(int(caught.sum()), len(caught), alpha)
    high = at_most(int(false.sum()), len(false), alpha)
    return max(0.0, log((low - delta) / high)) if low > delta else 0.0
