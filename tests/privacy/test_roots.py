"""Brent's method: the same numbers as SciPy's."""

from __future__ import annotations

import math

import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.privacy.accounting import _gaussian_delta
from m2fdp.privacy.roots import brentq

FUNCTIONS = {
    "cubic": (lambda x: x**3 - 2 * x - 5, 2, 3),
    "flat": (lambda x: (x - 1) ** 9, -3.0, 7.0),
    "steep": (lambda x: math.tanh(1e3 * (x - 0.3)), -1.0, 1.0),
    "steps": (lambda x: math.floor(10 * x) - 3.5, 0.0, 1.0),
    "decades": (lambda x: math.log(x) - 1.0, 1e-9, 1e6),
    "at the left": (lambda x: x, 0.0, 1.0),
    "at the right": (lambda x: x, -1.0, 0.0),
    "of a Gaussian": (lambda shift: _gaussian_delta(shift, 4.0) - 1e-5, 1e-9, 1e6),
    "epsilon": (lambda eps: _gaussian_delta(0.7, eps) - 1e-5, 0.0, 5.0),
}


def outcome(solve, function, low, high, xtol):
    """The root, or that there is none after a hundred steps, which multiple roots may take."""
    try:
        return solve(function, low, high, xtol=xtol)
    except RuntimeError:
        return "none"


@pytest.mark.parametrize("xtol", [2e-12, 1e-4])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_scipys_to_the_last_bit_and_asks_the_same_places(name, xtol):
    function, low, high = FUNCTIONS[name]
    places = {}
    for solve in (brentq, scipy.optimize.brentq):
        asked = []

        def recorded(x, asked=asked):
            asked.append(x)
            return function(x)

        asked.append(outcome(solve, recorded, low, high, xtol))
        places[solve] = asked
    assert places[brentq] == places[scipy.optimize.brentq]


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=5),
    st.floats(-9, -6),
    st.floats(6, 9),
    st.sampled_from([2e-12, 1e-9, 1.25e-4]),
)
def test_it_is_scipys_for_odd_polynomials(roots, low, high, xtol):
    roots = roots if len(roots) % 2 else [*roots, 0.1]

    def polynomial(x):
        return math.prod(x - root for root in roots)

    ours, theirs = (
        outcome(solve, polynomial, low, high, xtol) for solve in (brentq, scipy.optimize.brentq)
    )
    assert ours == theirs


def test_what_has_no_root_is_refused():
    with pytest.raises(ValueError, match="different signs"):
        brentq(lambda x: x * x + 1, -1.0, 1.0)
    with pytest.raises(RuntimeError, match="100 steps"):
        brentq(lambda x: math.copysign(1.0, x - 1e-300), -1e300, 1e300, xtol=0.0)
