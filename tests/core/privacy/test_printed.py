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

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2

from m2fdp.core.privacy.accounting import epsilon, subsampled
from m2fdp.zones.views import Releases, Zones, zone_epsilons

DELTA = 1e-5


@pytest.mark.parametrize(
    ("n", "d", "expected"), [(10, 7840, 156.6), (30, 7840, 27.6), (100, 7840, 5.9)]
)
def test_the_noise_s_scale_tells_who_is_on_line(n, d, expected):
    """P = N(0, s_1^2 I_d) against Q = N(0, s_0^2 I_d) with s proportional to one over the number of
    devices, n or n - 1, in both orders: the likelihood ratio depends on the squared norm alone."""
    s1, s0 = 1 / n, 1 / (n - 1)
    width, drift = 1 / s1**2 - 1 / s0**2, d * np.log(s0 / s1)

    def smaller(target):
        r = 2 * (drift - target) / width
        return chi2.cdf(r / s1**2, d) - np.exp(target + chi2.logcdf(r / s0**2, d)) - DELTA

    def larger(target):
        r = 2 * (drift + target) / width
        return chi2.sf(r / s0**2, d) - np.exp(target + chi2.logsf(r / s1**2, d)) - DELTA

    found = max(brentq(side, 1e-9, 500) for side in (smaller, larger))
    assert found == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize(
    ("rate", "z", "said", "found"), [(100 / 3383, 0.955, 3.06, 18.5), (0.2, 0.925, 24.8, 105)]
)
def test_the_printed_denominators_halve_the_multiplier(rate, z, said, found):
    def over_200_rounds(multiplier):
        return epsilon(((subsampled(rate, 1 / multiplier), 200),), DELTA)

    assert over_200_rounds(z) == pytest.approx(said, rel=5e-3)
    assert over_200_rounds(z / 2) == pytest.approx(found, rel=5e-3)


@pytest.mark.parametrize("m", [2, 10, 37])
def test_noise_on_the_sum_or_on_the_mean_is_the_same(m):
    """H Sec. IV-B advocates the mean: N(0, (z S)^2) over m is N(0, (z S / m)^2)."""
    z, once = 1.3, [Releases(((subsampled(1.0), 1),), ((subsampled(1.0), 1),))]
    shape = (np.zeros(m, dtype=int), np.ones(m), np.ones(1), np.ones(m), np.zeros(m))
    on_sum = Zones(*shape, np.array([z]), 0.0, np.ones(m))
    on_mean = Zones(shape[0], np.full(m, 1 / m), *shape[2:], np.array([z / m]), 0.0, np.ones(m))
    one, other = (zone_epsilons(its, once, DELTA)["epsilon"] for its in (on_sum, on_mean))
    assert one.to_numpy() == pytest.approx(other.to_numpy(), rel=1e-6)
