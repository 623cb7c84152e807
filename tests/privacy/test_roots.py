"""Brent's method against SciPy's: the same numbers to the last bit, at the same points."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq as scipys

from m2fdp.privacy.roots import brentq


def recorded(f):
    seen = []

    def g(x):
        seen.append(x)
        return f(x)

    return g, seen


def outcome(method, f, xtol):
    try:
        return method(f, -3.0, 4.5, xtol=xtol)
    except RuntimeError:
        return "no zero in a hundred steps"


def functions():
    draw = np.random.default_rng(5)
    for _ in range(200):
        a, b, c, d = draw.normal(size=4)
        yield lambda x, a=a, b=b, c=c: a * math.sinh(x) + b * x + c
        yield lambda x, a=a, b=b, d=d: math.atan(30 * a * (x - b)) + 0.1 * d
        yield lambda x, a=a, d=d: math.exp(a * x) - 1 - d
        yield lambda x, b=b: (x - b) ** 3
        # Steps, as of an epsilon on a grid, and values beyond all bounds.
        yield lambda x, a=a, b=b: math.floor(8 * a * (x - b)) + 0.5
        yield lambda x, b=b: math.inf if x > b else -1.0


@pytest.mark.parametrize("xtol", [2e-12, 1e-3, 1e-12])
def test_every_step_is_scipys(xtol):
    compared = 0
    for f in functions():
        if math.copysign(1, f(-3.0)) == math.copysign(1, f(4.5)):
            continue
        (ours, mine), (theirs, its) = recorded(f), recorded(f)
        assert outcome(brentq, ours, xtol) == outcome(scipys, theirs, xtol)
        assert mine == its
        compared += 1
    assert compared > 300


def test_a_zero_at_an_end_is_found_there():
    assert brentq(lambda x: x, 0.0, 1.0) == 0.0
    assert brentq(lambda x: x - 1, 0.0, 1.0) == 1.0


def test_what_can_not_be_found_is_said():
    with pytest.raises(ValueError, match="different signs"):
        brentq(lambda x: x * x + 1, -1.0, 1.0)
    with pytest.raises(RuntimeError, match="3 steps"):
        brentq(lambda x: x**3 - 0.2, -1.0, 5.0, steps=3)
