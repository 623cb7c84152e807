"""Where a function of one number is zero: Brent's method, as SciPy has it, without SciPy's half
second of imports."""

from __future__ import annotations

from collections.abc import Callable
from math import copysign
from sys import float_info

_RELATIVE = 4 * float_info.epsilon


def brentq(
    f: Callable[[float], float], low: float, high: float, *, xtol: float = 2e-12, steps: int = 100
) -> float:
    """The zero between two points where the function has different signs.

    The same steps as `scipy.optimize.brentq`, number by number, so that noise that was calibrated
    with that stays what it was.

    Args:
        xtol: how far from the zero the answer may be.
        steps: after which to give up.

    Raises:
        ValueError: the signs are the same.
        RuntimeError: no zero is found in so many steps.
    """
    before, now, other = low, high, 0.0
    f_before, f_now, f_other = float(f(before)), float(f(now)), 0.0
    step_before = step = 0.0
    if f_before == 0:
        return before
    if f_now == 0:
        return now
    if _same_sign(f_before, f_now):
        raise ValueError("f(low) and f(high) must have different signs")
    for _ in range(steps):
        if f_before != 0 and f_now != 0 and not _same_sign(f_before, f_now):
            other, f_other = before, f_before
            step_before = step = now - before
        if abs(f_other) < abs(f_now):
            before, now, other = now, other, now
            f_before, f_now, f_other = f_now, f_other, f_now
        tolerance = (xtol + _RELATIVE * abs(now)) / 2
        half = (other - now) / 2
        if f_now == 0 or abs(half) < tolerance:
            return now
        tried = None
        if abs(step_before) > tolerance and abs(f_now) < abs(f_before):
            tried = _interpolated((before, f_before), (now, f_now), (other, f_other))
        if tried is not None and 2 * abs(tried) < min(abs(step_before), 3 * abs(half) - tolerance):
            step_before, step = step, tried
        else:
            step_before = step = half
        before, f_before = now, f_now
        now += step if abs(step) > tolerance else copysign(tolerance, half)
        f_now = float(f(now))
    raise RuntimeError(f"no zero found in {steps} steps, up to {now!r}")


def _interpolated(
    before: tuple[float, float], now: tuple[float, float], other: tuple[float, float]
) -> float | None:
    """The step to the zero of a line through two points, or of a curve through three."""
    (x_before, f_before), (x, f), (x_other, f_other) = before, now, other
    try:
        if x_before == x_other:
            return -f * (x - x_before) / (f - f_before)
        slope_before = (f_before - f) / (x_before - x)
        slope_other = (f_other - f) / (x_other - x)
        return (
            -f
            * (f_other * slope_other - f_before * slope_before)
            / (slope_other * slope_before * (f_other - f_before))
        )
    except ZeroDivisionError:
        return None


def _same_sign(a: float, b: float) -> bool:
    return copysign(1.0, a) == copysign(1.0, b)
