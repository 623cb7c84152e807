"""Student's intervals of means over seeds, and what they say of a claimed number."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

HOLDS, FAILS, OPEN = "holds", "fails", "open"
IN_DIRECTION = "in direction"  # not in size

LEVEL = 0.95
MOST = 0.75  # of a curve's way
# Differences of exact shares such as 0.85 - 0.80 miss a threshold by some 1e-17.
SLACK = 1e-12


@dataclass(frozen=True)
class Summary:
    """Of values, one a seed."""

    mean: float  # NaN without values
    std: float  # of the sample; NaN for fewer than two, or where only some are infinite
    n: int

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Student's t interval of the mean; all numbers where the values tell nothing."""
        if math.isnan(self.std):
            return -math.inf, math.inf
        if not self.std:  # also of equal infinite values
            return self.mean, self.mean
        from scipy.special import stdtrit  # whoever names verdicts alone does not wait for it

        half = float(stdtrit(self.n - 1, (1 + level) / 2)) * self.std / math.sqrt(self.n)
        return self.mean - half, self.mean + half


def summarise(values: np.ndarray) -> Summary:
    """The mean and sample standard deviation of (n,) values without NaN."""
    n = len(values)
    if n < 2 or (values == values[0]).all():
        return Summary(float(values[0]) if n else math.nan, math.nan if n < 2 else 0.0, n)
    with np.errstate(invalid="ignore"):
        return Summary(float(values.mean()), float(values.std(ddof=1)), n)


def against_bounds(interval: tuple[float, float], at_least: float, at_most: float) -> str:
    """The verdict on an interval that should lie between two numbers; NaN = no such number.

    It holds if it lies between them, fails if it lies beyond one, and is open otherwise: also
    where it touches one, as that of a tie touches zero.
    """
    low, high = interval
    slack = SLACK * max(1.0, float(np.fmax(abs(at_least), abs(at_most))))
    if high < at_least - slack or low > at_most + slack:
        return FAILS
    touched = low <= at_least + slack or high >= at_most - slack
    return OPEN if touched else HOLDS


def against_size(interval: tuple[float, float], size: float, tolerance: float) -> str:
    """The verdict on an interval that should lie on a claimed number's side of zero, and meet the
    number, give or take `tolerance` as a share of it.

    It is in direction if it only lies on that side. It fails beyond zero, or if it does neither.
    """
    low, high = sorted(math.copysign(1, size) * end for end in interval)
    verdict = against_bounds((low, high), 0.0, math.nan)
    if abs(size) * (1 - tolerance) <= high and low <= abs(size) * (1 + tolerance):
        return verdict
    return IN_DIRECTION if verdict == HOLDS else FAILS


def rising(values: np.ndarray, tie: float = 0.0, level: float = LEVEL) -> str:
    """The verdict on values that should rise from column to column, judged in the large.

    It is in direction if the interval of the last column's differences from the first lies above
    zero. It holds if the mean curve goes up for `MOST` of its way as well.

    Args:
        values: (n, k), a row a seed and a column a value of what they rise over; k of two or more.
        tie: a change that counts as none, in units of the values.
    """
    with np.errstate(invalid="ignore"):  # of two infinite values
        steps, gains = np.diff(values.mean(axis=0)), values[:, -1] - values[:, 0]
    slack = max(tie, SLACK * float(np.abs(values[np.isfinite(values)]).max(initial=1.0)))
    low, high = summarise(gains).interval(level)
    if not low > slack:
        return FAILS if high < -slack else OPEN
    steps = steps[np.isfinite(steps) & (np.abs(steps) > slack)]
    up = float(steps[steps > 0].sum())
    return HOLDS if up >= MOST * float(np.abs(steps).sum()) else IN_DIRECTION


def several_looks(looks: Sequence[Callable[[float], str]]) -> list[str]:
    """The verdicts of several looks at one claim, by level, together at `LEVEL` (Holm)."""
    told, left = [OPEN] * len(looks), [*range(len(looks))]
    while left:
        level = 1 - (1 - LEVEL) / len(left)
        decided = [i for i in left if looks[i](level) != OPEN]
        if not decided:
            break
        told[decided[0]] = looks[decided[0]](LEVEL)
        left.remove(decided[0])
    return told
