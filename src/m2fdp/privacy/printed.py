"""What H's Algorithm 1 promises as it is printed, with denominators of those who came.

It divides a zone's sum of clipped updates by q W, where W is the weight of those sampled in the
round, and scales its noise by the same (l. 12, 14). Two things follow, and either is enough:

- One device more changes the denominator too, so that it moves the mean by up to 2 S w / (q W)
  instead of S w / (q W): the noise multiplier is z/2 (McMahan et al. 2018, Lemma 1).
- The noise shows its own scale, and with it how many came. With d parameters the squared norm of
  N(0, s^2 I_d) tells s the better the larger d is, whatever z.

Over public, fixed numbers (`training.estimator`) neither is so. Noise on the sum or, as H
advocates, on the mean makes no difference: both are divided by the same number.
"""

from __future__ import annotations

from math import log

import numpy as np

# How many standard deviations beside its mean a squared norm is looked at, on how many points.
_REACH, _POINTS = 14.0, 20_001


def printed_multiplier(multiplier: float) -> float:
    """What the printed denominators leave of a noise multiplier z."""
    return multiplier / 2


def epsilon_of_scale(on_line: int, parameters: int, delta: float, releases: int = 1) -> float:
    """What noise tells by its scale alone of whether one device more is on line.

    P = N(0, s_1^2 I_d) against Q = N(0, s_0^2 I_d) with s proportional to 1/W, of W = n and n - 1
    devices of weight 1, in both orders. The likelihood ratio depends on the squared norm alone,
    which is s^2 times a chi-squared number of d degrees of freedom:

        delta(epsilon) = F_d(r / s_1^2) - e^epsilon F_d(r / s_0^2),
        r = 2 (d ln(s_0 / s_1) - epsilon) / (1 / s_1^2 - 1 / s_0^2),

    and survival functions the other way round. They are computed as means over P of what the ratio
    leaves, 1 - e^(epsilon - loss), where nothing underflows.

    Args:
        on_line: n, at least 2.
        parameters: of the model.
        releases: T rounds in which as many are on line: as one release of T d numbers.

    Returns:
        Epsilon at delta, the larger of the two orders.
    """
    d = parameters * releases
    growth = on_line / (on_line - 1)  # s_0 / s_1
    # Losses by x, a chi-squared number: of what is smaller with one device more, and the reverse.
    more = _epsilon_at(d, delta, d * log(growth), -(1 - growth**-2) / 2)
    fewer = _epsilon_at(d, delta, -d * log(growth), (growth**2 - 1) / 2)
    return max(more, fewer)


def _epsilon_at(d: int, delta: float, offset: float, slope: float) -> float:
    """The least epsilon whose mean of (1 - e^(epsilon - loss))_+ is delta, loss = offset + slope x,
    x chi-squared of d degrees of freedom."""
    from scipy.optimize import brentq
    from scipy.stats import chi2

    reach = _REACH * (2 * d) ** 0.5 + 4 * _REACH
    low = max(d - reach, 0.0)
    step = (d + reach - low) / _POINTS
    x = low + (np.arange(_POINTS) + 0.5) * step
    masses, losses = chi2.pdf(x, d) * step, offset + slope * x

    def excess(epsilon: float) -> float:
        left = -np.expm1(np.minimum(epsilon - losses, 0.0))
        return float(left @ masses) - delta

    high = float(losses.max())
    return float(brentq(excess, 0.0, high, xtol=1e-9)) if excess(0.0) > 0 else 0.0
