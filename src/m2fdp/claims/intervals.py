"""Student's intervals of means over seeds, and what they say of a claimed number."""

import math
from dataclasses import dataclass

import numpy as np

HOLDS, FAILS, OPEN = "holds", "fails", "open"
IN_PART = "holds in part"  # over the versions of a study: in one it holds, in another it fails

LEVEL = 0.95
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


def rising(values: np.ndarray, tie: float = 0.0) -> str:
    """The verdict on values that should rise from column to column.

    It holds if the interval of the last column's differences from the first lies above zero. It
    fails if that lies below, or if the interval of any step does, those of all steps together at
    `LEVEL` (Bonferroni); it is open otherwise.

    Args:
        values: (n, k), a row a seed and a column a value of what they rise over; k of two or more.
        tie: a change that counts as none, in units of the values.
    """
    with np.errstate(invalid="ignore"):  # of two infinite values
        steps, gains = np.diff(values, axis=1), values[:, -1] - values[:, 0]
    slack = max(tie, SLACK * float(np.abs(values[np.isfinite(values)]).max(initial=1.0)))
    joint = 1 - (1 - LEVEL) / steps.shape[1]
    if any(summarise(step).interval(joint)[1] < -slack for step in steps.T):
        return FAILS
    low, high = summarise(gains).interval()
    return HOLDS if low > slack else FAILS if high < -slack else OPEN
