"""Epsilon against independent values."""

from math import exp, inf, sqrt

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from m2fdp.privacy.accounting import gaussian_epsilon, least_noise_multiplier


def analytic_epsilon(z, delta):
    """Balle and Wang 2018, Theorem 8: the exact curve of one Gaussian release."""

    def excess(epsilon):
        return (
            norm.cdf(1 / (2 * z) - epsilon * z)
            - exp(epsilon) * norm.cdf(-1 / (2 * z) - epsilon * z)
            - delta
        )

    return brentq(excess, 0, 500)


@pytest.mark.parametrize(("z", "n"), [(1.0, 1), (5.0, 1), (20.0, 300), (60.0, 300), (2.0, 10)])
def test_whole_shards_are_one_gaussian(z, n):
    exact = analytic_epsilon(z / sqrt(n), 1e-5)
    assert gaussian_epsilon(z, 1.0, n, 1e-5) == pytest.approx(exact, rel=1e-3)
    assert gaussian_epsilon(z, 1.0, n, 1e-5) >= exact * (1 - 1e-9)


SUBSAMPLED = [(1.0, 0.01, 1000), (5.0, 0.1, 50), (2.0, 0.03, 400), (8.0, 0.5, 40)]


@pytest.mark.parametrize(("z", "q", "n"), SUBSAMPLED)
def test_within_two_percent_of_opacus_prv(z, q, n):
    prv = PRVAccountant()
    prv.history = [(z, q, n)]
    assert gaussian_epsilon(z, q, n, 1e-5) == pytest.approx(prv.get_epsilon(1e-5), rel=0.02)


@pytest.mark.parametrize(("z", "q", "n"), SUBSAMPLED)
def test_never_above_renyi_accounting(z, q, n):
    # Orders below 2 don't converge at large q and only tighten the bound.
    renyi = RdpAccountant(orders=range(2, 128))
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
    renyi.compose(event, n)
    assert gaussian_epsilon(z, q, n, 1e-5) <= renyi.get_epsilon(1e-5)


def test_ends_of_the_range():
    assert gaussian_epsilon(1.0, 0.5, 0, 1e-5) == 0
    assert gaussian_epsilon(0.0, 0.5, 1, 1e-5) == inf


@settings(max_examples=12, deadline=None)
@given(st.floats(0.8, 8), st.floats(0.01, 0.6), st.integers(1, 200), st.sampled_from([1e-5, 1e-3]))
def test_more_noise_fewer_releases_and_rarer_sampling_never_cost_more(z, q, n, delta):
    spent = gaussian_epsilon(z, q, n, delta)
    slack = 1 + 1e-6
    assert gaussian_epsilon(1.1 * z, q, n, delta) <= spent * slack + 1e-9
    assert gaussian_epsilon(z, 0.9 * q, n, delta) <= spent * slack + 1e-9
    assert gaussian_epsilon(z, q, n + 5, delta) >= spent / slack - 1e-9


@pytest.mark.parametrize(
    ("q", "n", "epsilon"),
    [(1.0, 300, 1.0), (0.02, 1000, 1.0), (0.3, 60, 0.5), (1.0, 1, 8.0), (0.01, 4000, 0.1)],
)
def test_calibrated_noise_is_enough_and_minimal(q, n, epsilon):
    z = least_noise_multiplier(q, n, epsilon, 1e-5)
    assert gaussian_epsilon(z, q, n, 1e-5) <= epsilon
    assert gaussian_epsilon(0.99 * z, q, n, 1e-5) > epsilon
