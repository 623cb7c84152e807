"""Student's intervals, and what a verdict does as its values move."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from m2fdp.claims.intervals import (
    FAILS,
    HOLDS,
    IN_DIRECTION,
    OPEN,
    against_bounds,
    rising,
    summarise,
)

ORDER = [FAILS, OPEN, IN_DIRECTION, HOLDS]
NO_BOUND = math.nan

differences = st.lists(st.floats(-1, 1), min_size=1, max_size=6).map(np.array)
bounds = st.floats(-1, 1)


def at_least(values: np.ndarray, bound: float) -> str:
    return against_bounds(summarise(values).interval(), bound, NO_BOUND)


def at_most(values: np.ndarray, bound: float) -> str:
    return against_bounds(summarise(values).interval(), NO_BOUND, bound)


@pytest.mark.parametrize("level", [0.95, 0.9875])
@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_the_interval_is_students(n, level):
    values = np.random.default_rng(n).normal(0.3, 2.0, n)
    scale = values.std(ddof=1) / math.sqrt(n)
    expected = t.interval(level, n - 1, loc=values.mean(), scale=scale)
    assert summarise(values).interval(level) == pytest.approx(expected)


@given(differences, bounds, st.lists(st.floats(0, 2), min_size=2, max_size=6))
def test_a_verdict_only_moves_from_fails_over_open_to_holds(values, bound, shifts):
    """As all differences grow; and the other way round against a bound from above."""
    shifted = [values + shift for shift in sorted(shifts)]
    ranks = [ORDER.index(at_least(each, bound)) for each in shifted]
    down = [ORDER.index(at_most(each, bound)) for each in shifted]
    assert ranks == sorted(ranks) and down == sorted(down, reverse=True)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6).map(np.array), bounds)
def test_far_enough_every_verdict_is_reached(values, bound):
    far = 100 * (1 + float(np.ptp(values)))
    assert at_least(values + far, bound) == at_most(values - far, bound) == HOLDS
    assert at_least(values - far, bound) == at_most(values + far, bound) == FAILS
    assert at_least(values - values.mean() + bound, bound) == OPEN


@given(st.integers(2, 9), bounds, st.floats(-1e-16, 1e-16))
def test_a_tie_is_never_larger_nor_smaller(n, bound, rounding):
    tie = np.full(n, bound)
    tie[0] += rounding
    assert at_least(tie, bound) == at_most(tie, bound) == OPEN
    assert rising(np.column_stack([tie, np.full(n, bound), tie])) == OPEN


@given(st.floats(allow_nan=False), st.floats(allow_nan=False, allow_infinity=False))
def test_one_seed_is_always_open(value, bound):
    one = np.array([value])
    assert at_least(one, bound) == at_most(one, bound) == OPEN
    assert rising(np.array([[bound, value]])) == OPEN


@given(differences, bounds, bounds)
def test_between_two_bounds_is_beyond_both(values, one, other):
    low, high = sorted((one, other))
    verdicts = {at_least(values, low), at_most(values, high)}
    expected = FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS
    assert against_bounds(summarise(values).interval(), low, high) == expected


@given(st.lists(st.tuples(*[st.floats(-1, 1)] * 3), min_size=1, max_size=5), st.floats(0, 2))
def test_a_trend_only_gains_by_a_larger_last_value(rows, shift):
    values = np.array(rows)
    moved = values + np.array([0.0, 0.0, shift])
    assert ORDER.index(rising(values)) <= ORDER.index(rising(moved))
    if HOLDS in (rise := rising(values), rising(-values)):
        assert {rise, rising(-values)} != {HOLDS}


def test_false_verdicts_are_as_rare_as_the_level_says():
    """Of 4,000 ties of three seeds 2.5 % hold and 2.5 % fail; 5.2 deviations are 1 in 10⁷."""
    draws = np.random.default_rng(0).normal(0.0, 1.0, (4000, 3))
    verdicts = [at_least(values, 0.0) for values in draws]
    for verdict in (HOLDS, FAILS):
        assert abs(verdicts.count(verdict) - 100) < 5.2 * math.sqrt(100 * 0.975)


def test_infinite_values_decide_where_all_seeds_agree():
    assert at_most(np.array([math.inf, math.inf]), 1.0) == FAILS
    assert at_least(np.array([math.inf, math.inf]), 1.0) == HOLDS
    assert at_most(np.array([math.inf, 0.5]), 1.0) == OPEN
    assert rising(np.array([[1.0, math.inf], [2.0, math.inf]])) == HOLDS
    assert rising(np.full((2, 3), math.inf)) == OPEN


def test_a_change_that_counts_as_none_is_neither_a_trend_nor_against_one():
    still = np.full((3, 3), 2.0) + [0.0, -0.04, 0.0]
    assert rising(still) == rising(-still) == OPEN
    ends = still + [0.0, 0.0, 0.06]
    assert rising(ends) == IN_DIRECTION  # 0.1 up of 0.14
    assert rising(ends, tie=0.05) == HOLDS


@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        ([1.0, 2.0, 1.5, 3.5], HOLDS),  # 3.0 up of 3.5
        ([1.0, 2.0, 1.0, 2.0], IN_DIRECTION),  # 2 up of 3
        ([2.0, 3.0, 1.0], FAILS),
        ([1.0, 5.0, 1.0], OPEN),
        ([8.0, 8.3, 4.1], FAILS),
    ],
)
def test_a_curve_is_judged_in_the_large(curve, verdict):
    assert rising(np.array([curve] * 3)) == verdict
    assert rising(-np.array([curve] * 3)[:, ::-1]) == verdict
