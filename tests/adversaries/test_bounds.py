"""Counts to bounds: against values worked by hand and against exact coverage."""

from math import log

import numpy as np
import pytest
from scipy.stats import binom

from m2fdp.adversaries.bounds import (
    Rule,
    choose_rule,
    clopper_pearson,
    epsilon_bound,
    largest_bound,
)


def test_clopper_pearson_by_hand():
    # No hits in n: (1 - p)^n = alpha. All hits: p^n = alpha.
    assert clopper_pearson(0, 20, 0.05) == (0.0, pytest.approx(1 - 0.05 ** (1 / 20)))
    assert clopper_pearson(20, 20, 0.05) == (pytest.approx(0.05 ** (1 / 20)), 1.0)
    # The published two-sided 95 % interval of 5 in 10.
    assert clopper_pearson(5, 10, 0.025) == pytest.approx((0.1871, 0.8129), abs=1e-4)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.97])
def test_each_bound_is_wrong_at_most_as_often_as_stated(p):
    hits = np.arange(41)
    bounds = np.array([clopper_pearson(int(k), 40, 0.025) for k in hits])
    chances = binom.pmf(hits, 40, p)
    assert chances[bounds[:, 0] > p].sum() <= 0.025
    assert chances[bounds[:, 1] < p].sum() <= 0.025


def test_the_bound_by_hand():
    absent, present = np.zeros(50), np.ones(50)
    low, high = 0.025 ** (1 / 50), 1 - 0.025 ** (1 / 50)
    expected = log((low - 0.01) / high)
    assert epsilon_bound(Rule(True, 0.5), absent, present, 0.01, 0.025) == pytest.approx(expected)
    assert epsilon_bound(Rule(False, 0.5), absent, present, 0.01, 0.025) == pytest.approx(expected)
    assert largest_bound(50, 0.01, 0.025) == pytest.approx(expected)
    # A test that errs always shows nothing, and so does one that delta explains.
    assert epsilon_bound(Rule(True, 0.5), present, absent, 0.01, 0.025) == 0
    assert epsilon_bound(Rule(True, 0.5), absent, present, 0.95, 0.025) == 0


def test_the_rule_takes_the_direction_that_shows_more():
    rng = np.random.default_rng(0)
    absent = rng.normal(0, 0.1, 1000)
    # Half of the time the record leaves no trace: its absence can't be told, its presence can.
    present = np.where(rng.random(1000) < 0.5, absent, 5.0)
    rule = choose_rule(absent, present, 1e-5, 0.025)
    assert rule.present
    assert 0.1 < rule.threshold < 5
    mirrored = choose_rule(-present, -absent, 1e-5, 0.025)
    assert not mirrored.present
