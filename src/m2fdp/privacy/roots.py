"""Roots of functions of one number, without SciPy's optimisers: their import takes as long as a
round on digits."""

from __future__ import annotations

from collections.abc import Callable
from math import copysign

_ITERATIONS = 100
_RELATIVE = 8.881784197001252e-16  # four machine epsilons


def brentq(
    function: Callable[[float], float], low: float, high: float, xtol: float = 2e-12
) -> float:
    """A root between two places where the function has opposite signs (Brent 1973, ch. 4).

    It is what `scipy.optimize.brentq` returns, to the last bit: step by step the same numbers.

    Args:
        xtol: how far from a root the result may be.

    Raises:
        ValueError: the signs are the same.
        RuntimeError: no root after a hundred steps.
    """
    before, here = float(low), float(high)
    f_before, f_here = float(function(before)), float(function(here))
    if f_before == 0:
        return before
    if f_here == 0:
        return here
    if _same_sign(f_before, f_here):
        raise ValueError("f(a) and f(b) must have different signs")
    across = f_across = step_before = step = 0.0
    for _ in range(_ITERATIONS):
        if f_before != 0 and f_here != 0 and not _same_sign(f_before, f_here):
            across, f_across = before, f_before
            step_before = step = here - before
        if abs(f_across) < abs(f_here):
            before, here, across = here, across, here
            f_before, f_here, f_across = f_here, f_across, f_here
        least = (xtol + _RELATIVE * abs(here)) / 2
        half = (across - here) / 2
        if f_here == 0 or abs(half) < least:
            return here
        if abs(step_before) > least and abs(f_here) < abs(f_before):
            if before == across:  # the secant
                tried = -f_here * (here - before) / (f_here - f_before)
            else:  # through three points
                d_before = (f_before - f_here) / (before - here)
                d_across = (f_across - f_here) / (across - here)
                tried = (
                    -f_here
                    * (f_across * d_across - f_before * d_before)
                    / (d_across * d_before * (f_across - f_before))
                )
            if 2 * abs(tried) < min(abs(step_before), 3 * abs(half) - least):
                step_before, step = step, tried
            else:
                step_before = step = half
        else:
            step_before = step = half
        before, f_before = here, f_here
        here += step if abs(step) > least else copysign(least, half)
        f_here = float(function(here))
    raise RuntimeError(f"no root after {_ITERATIONS} steps; the last place is {here}")


def _same_sign(a: float, b: float) -> bool:
    return copysign(1.0, a) == copysign(1.0, b)
