"""D Theorem 1's rate for clients, as printed, on the simplest function that it covers."""

from itertools import accumulate
from math import exp

import numpy as np
import pytest

# Of one client with F(w) = w^2 / 2 and gradients of variance 1: mu = L = sigma = B = A = K = D = 1,
# and the largest step that the theorem allows, 1/(8 L (1 + B^2)).
ETA = 1 / 16


def excess(rounds: int, eta: float) -> float:
    """E F at the weighted average of Lemma 1, w_r by (1 - eta/2)^-r, of w_0 = 1; exactly.

    w_r = (1 - eta)^r - eta sum_s (1 - eta)^(r-1-s) xi_s, so the average is linear in the noise.
    """
    steps = np.arange(rounds)
    log_weights = -steps * np.log1p(-eta / 2)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = (weights * (1 - eta) ** steps).sum()
    # The weight of xi_s: what is left of it in all later iterates.
    of_noise = list(accumulate(weights[:0:-1], lambda left, weight: weight + (1 - eta) * left))
    return (mean**2 + eta**2 * np.square(of_noise).sum()) / 2


def printed(rounds: int) -> float:
    """mu D^2 e^(-eta mu R / 2) + eta H^2 / (mu R A), with H = 1."""
    return exp(-ETA * rounds / 2) + ETA / rounds


def test_the_excess_stays_where_the_printed_rate_falls_so_no_constant_holds():
    values = {rounds: excess(rounds, ETA) for rounds in (100, 300, 10_000)}
    # In the limit, of geometric weights over a stationary process: 0.005322 (by hand).
    a, keeps = ETA / 2, 1 - ETA
    limit = ETA / (2 - ETA) * a / (2 - a) * (1 + (1 - a) * keeps) / (1 - (1 - a) * keeps) / 2
    assert values[300] == pytest.approx(limit, rel=1e-3)
    assert values[10_000] == pytest.approx(limit, rel=1e-9)
    ratios = [values[rounds] / printed(rounds) for rounds in values]
    assert ratios[0] < 1 < 18 < ratios[1]
    assert ratios[2] > 850


def test_what_is_missing_is_the_noise_that_a_step_of_any_size_leaves():
    """It is a share of the step, however many the rounds; printed is the step over the rounds."""
    for rounds in (1_000, 10_000):
        assert excess(rounds, ETA) / excess(rounds, ETA / 2) == pytest.approx(2, rel=0.05)
