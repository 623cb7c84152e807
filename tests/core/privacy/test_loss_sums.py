"""Sums of privacy losses against dp-accounting's own: the same numbers, to the last bit."""

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import common, privacy_loss_distribution
from dp_accounting.pld.pld_pmf import DensePLDPmf

from m2fdp.core.privacy.loss_sums import quick
from m2fdp.core.privacy.mixtures import mixture_distribution

SPACING = 2.0**-9
DELTAS = (1e-9, 1e-6, 1e-5, 1e-3, 0.05, 0.4)


def distributions(draw):
    """Of one release: mixtures, sampled Gaussians, and neighbours that are replaced."""
    for _ in range(3):
        n = int(draw.integers(2, 9))
        shifts = np.sort(draw.uniform(0.02, 1.5, n))
        yield mixture_distribution([0.0, *shifts], draw.dirichlet([3.0, *np.ones(n)]), SPACING)
        q, noise = draw.uniform(0.01, 0.6), draw.uniform(0.6, 4.0)
        for relation in (NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE):
            yield privacy_loss_distribution.from_gaussian_mechanism(
                noise,
                sampling_prob=q,
                value_discretization_interval=SPACING,
                neighboring_relation=relation,
            )
    for noise in (40.0, 300.0):  # of so few points that dp-accounting keeps them in a dictionary
        yield privacy_loss_distribution.from_gaussian_mechanism(
            noise, sampling_prob=0.2, value_discretization_interval=SPACING
        )


def same(a, b):
    """Two distributions, and the epsilons that they give, are the same, bit by bit."""
    for delta in DELTAS:
        assert a.get_epsilon_for_delta(delta) == b.get_epsilon_for_delta(delta)
    for one, other in ((a._pmf_remove, b._pmf_remove), (a._pmf_add, b._pmf_add)):
        one, other = one.to_dense_pmf(), other.to_dense_pmf()
        assert one._lower_loss == other._lower_loss
        assert one._infinity_mass == other._infinity_mass
        assert np.asarray(one._probs).tobytes() == np.asarray(other._probs).tobytes()


@pytest.mark.parametrize("times", [1, 2, 7, 60, 1000])
def test_a_release_many_times(times):
    for plain in distributions(np.random.default_rng(times)):
        same(quick(plain).self_compose(times), plain.self_compose(times))


def test_different_releases_together():
    plain = list(distributions(np.random.default_rng(3)))
    for first, second, third in zip(plain, plain[1:], plain[2:], strict=False):
        theirs = first.self_compose(40).compose(second.self_compose(3)).compose(third)
        ours = quick(first).self_compose(40).compose(quick(second).self_compose(3))
        same(ours.compose(quick(third)), theirs)


def test_bounds_are_those_of_dp_accounting_where_chances_are_zero_or_all_in_one_place():
    draw = np.random.default_rng(8)
    sparse = np.where(draw.uniform(size=1500) < 0.9, 0.0, draw.uniform(size=1500))
    lonely = np.zeros(1200)
    lonely[7] = 1.0
    for chances in (sparse / sparse.sum(), lonely):
        pmf = DensePLDPmf(SPACING, -30, chances, 0.0, True)
        ours = quick(privacy_loss_distribution.PrivacyLossDistribution(pmf))._pmf_remove
        for times in (1, 5, 300):
            expected = common.compute_self_convolve_bounds(list(chances), times, 1e-15)
            assert ours._bounds(times, 1e-15) == expected


def test_losses_without_end_and_deltas_that_pay_for_all():
    chances = np.full(2000, 1 / 2000)
    for lower, infinite in ((0, 0.5), (3_000_000, 0.0), (-1000, 0.0), (-5000, 1e-6)):
        pmf = DensePLDPmf(SPACING, lower, chances * (1 - infinite), infinite, True)
        plain = privacy_loss_distribution.PrivacyLossDistribution(pmf)
        for delta in (*DELTAS, 0.9):
            assert quick(plain).get_epsilon_for_delta(delta) == plain.get_epsilon_for_delta(delta)
    assert math.isinf(quick(plain).get_epsilon_for_delta(1e-9))
