"""Counts to bounds: against values worked by hand and against exact coverage."""

from math import log

import numpy as np
import pytest
from scipy.stats import beta, binom

from m2fdp.adversaries.membership import Rule, at_least, at_most, choose_rule, epsilon_bound


def test_probabilities_by_hand():
    # No hits in n: (1 - p)^n = alpha. All hits: p^n = alpha.
    assert at_least(0, 20, 0.05) == 0.0
    assert at_most(0, 20, 0.05) == pytest.approx(1 - 0.05 ** (1 / 20))
    assert at_least(20, 20, 0.05) == pytest.approx(0.05 ** (1 / 20))
    assert at_most(20, 20, 0.05) == 1.0
    # The published two-sided 95 % interval of 5 in 10.
    assert at_least(5, 10, 0.025) == pytest.approx(0.1871, abs=1e-4)
    assert at_most(5, 10, 0.025) == pytest.approx(0.8129, abs=1e-4)


@pytest.mark.parametrize("trials", [20, 500])
def test_probabilities_are_quantiles_of_the_beta_law(trials):
    # The closed form of the bounds; scipy finds them as roots of the binomial law.
    for hits in range(1, trials, 7):
        low = beta.ppf(0.025, hits, trials - hits + 1)
        high = beta.ppf(0.975, hits + 1, trials - hits)
        assert at_least(hits, trials, 0.025) == pytest.approx(low, rel=1e-9)
        assert at_most(hits, trials, 0.025) == pytest.approx(high, rel=1e-9)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.97])
def test_each_bound_is_wrong_at_most_as_often_as_stated(p):
    hits = np.arange(41)
    low = np.array([at_least(int(k), 40, 0.025) for k in hits])
    high = np.array([at_most(int(k), 40, 0.025) for k in hits])
    chances = binom.pmf(hits, 40, p)
    assert chances[low > p].sum() <= 0.025
    assert chances[high < p].sum() <= 0.025


def test_the_bound_by_hand():
    absent, present = np.zeros(50), np.ones(50)
    low, high = 0.025 ** (1 / 50), 1 - 0.025 ** (1 / 50)
    expected = log((low - 0.01) / high)
    assert epsilon_bound(Rule(True, 0.5), absent, present, 0.01, 0.025) == pytest.approx(expected)
    assert epsilon_bound(Rule(False, 0.5), absent, present, 0.01, 0.025) == pytest.approx(expected)
    # A test that errs always shows nothing, and so does one that delta explains.
    assert epsilon_bound(Rule(True, 0.5), present, absent, 0.01, 0.025) == 0
    assert epsilon_bound(Rule(True, 0.5), absent, present, 0.95, 0.025) == 0


def test_the_rule_takes_the_direction_that_shows_more():
    rng = np.random.default_rng(0)
    absent = rng.normal(0, 0.1, 1000)
    # Half of the time the record leaves no trace: its absence can't be seen, its presence can.
    present = np.where(rng.random(1000) < 0.5, absent, 5.0)
    rule = choose_rule(absent, present, 1e-5, 0.025)
    assert rule.present
    assert 0.1 < rule.threshold < 5
    mirrored = choose_rule(-present, -absent, 1e-5, 0.025)
    assert not mirrored.present
