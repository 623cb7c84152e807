"""Epsilon against independent values."""

from math import exp, inf, isfinite, log, sqrt

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant
from scipy.optimize import brentq
from scipy.stats import binom, norm

from m2fdp.core.privacy.accounting import ShiftLaw, epsilon, least_noise, subsampled
from m2fdp.core.privacy.mixtures import mixture_distribution

DELTA = 1e-5


def gaussian_epsilon(z, q, n, delta):
    """Epsilon of n Gaussian releases of a Poisson sample, noise multiplier z."""
    return epsilon(((subsampled(q, inf if z == 0 else 1 / z), n),), delta)


def threshold_bound(z, q, n, delta):
    """A lower bound on epsilon: the best threshold test on the sum of all releases.

    A test with true positive rate a and false positive rate b shows log((a - delta) / b).
    """
    hits = np.unique(np.linspace(*binom.interval(1 - 1e-9, n, q), 400).round())
    if q == 1:
        hits = np.array([n])
    # Fewer hits move the sum less, so mass between two grid points goes to the lower one.
    upper = np.append(hits[1:] - 1, n)
    chances = binom.cdf(upper, n, q) - binom.cdf(hits - 1, n, q)
    best = 0.0
    for t in np.linspace(0, hits[-1] / z / sqrt(n) + 8, 400):
        caught = float(chances @ norm.sf(t - hits / z / sqrt(n)))
        if caught > delta:
            best = max(best, log(caught - delta) - norm.logsf(t))
    return best


@given(st.floats(1e-3, 900), st.floats(1e-12, 0.3), st.integers(1, 300))
def test_releases_of_whole_shards_are_one_gaussian_as_dp_accounting_has_it(mu, delta, n):
    own = gaussian_epsilon(sqrt(n) / mu, 1.0, n, delta)
    theirs = dp_accounting.get_epsilon_gaussian(1 / mu, delta)
    assert own == pytest.approx(theirs, rel=1e-9, abs=1e-8)
    # Never below the curve: at this epsilon, no more than delta is left.
    left = norm.cdf(mu / 2 - own / mu) - exp(own + norm.logcdf(-mu / 2 - own / mu))
    assert left <= delta * (1 + 1e-9) + 1e-15


SUBSAMPLED = [(1.0, 0.01, 1000), (5.0, 0.1, 50), (2.0, 0.03, 400), (8.0, 0.5, 40)]


@pytest.mark.parametrize(
    ("z", "q", "n"), [*SUBSAMPLED, (1.0, 1.0, 1), (20.0, 1.0, 300), (1.0, 0.01, 10_000)]
)
def test_below_renyi_accounting_and_within_two_percent_of_opacus_prv(z, q, n):
    found = gaussian_epsilon(z, q, n, DELTA)
    # Orders below 2 don't converge at large q and only tighten the bound.
    orders = [*np.arange(2, 64, 0.25 if q == 1 else 1.0), *range(64, 512)]
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
    renyi = RdpAccountant(orders=orders).compose(event, n).get_epsilon(DELTA)
    loose = (z, q, n) in SUBSAMPLED and n != 50
    assert (0.0 if loose else 0.85) * renyi <= found <= renyi
    if (z, q, n) in SUBSAMPLED:
        prv = PRVAccountant()
        prv.history = [(z, q, n)]
        assert found == pytest.approx(prv.get_epsilon(DELTA), rel=0.02)


# The second is rare and its losses, in the hundreds, lie on a coarse grid.
@pytest.mark.parametrize(("q", "sigma"), [(0.3, 0.8), (0.02, 0.08)])
def test_one_mixture_against_its_integral(q, sigma):
    """W = 2, s = 2 with an un-noised synchronisation: shifts 3/2, 1/2 and none, by quadrature."""
    law = ShiftLaw((0.0, 0.5, 1.5), ((1 - q) ** 2, q * (1 - q), q))
    x = np.linspace(-14, 14, 400_001)
    without = norm.pdf(x, scale=sigma)
    with_record = norm.pdf(x[:, None], law.shifts, sigma) @ law.probabilities
    width = x[1] - x[0]

    def excess(value):
        removed = np.maximum(with_record - exp(value) * without, 0).sum() * width
        added = np.maximum(without - exp(value) * with_record, 0).sum() * width
        return max(removed, added) - DELTA

    exact = brentq(excess, 0, 500)
    spent = epsilon(((law.scaled(1 / sigma), 1),), DELTA)
    assert exact - 1e-6 <= spent <= 1.005 * exact


@pytest.mark.parametrize(("q", "sigma"), [(0.3, 0.8), (0.02, 0.5), (1.0, 2.0)])
@pytest.mark.parametrize("angle", [0.0, 0.5, 1.0])
def test_replacing_one_record_is_worst_where_the_two_push_opposite_ways(q, sigma, angle):
    """Two records of norm 1 at any angle, by quadrature in the plane, against the bound.

    At the angle 0 they oppose each other, which is the pair of docs/privacy/neighbours.md's proof.
    """
    u, v = (1.0, 0.0), (-np.cos(np.pi * angle), np.sin(np.pi * angle))
    x = np.linspace(-1 - 7 * sigma, 1 + 7 * sigma, 1201)
    width = x[1] - x[0]

    def density(move):
        moved, still = (
            np.outer(norm.pdf(x, a, sigma), norm.pdf(x, b, sigma)) for a, b in (move, (0, 0))
        )
        return q * moved + (1 - q) * still

    one, other = density(u), density(v)

    def excess(value):
        return np.maximum(one - exp(value) * other, 0).sum() * width**2 - DELTA

    spent = epsilon(((subsampled(q, 1 / sigma), 1),), DELTA, "replace_one")
    exact = 0.0 if excess(0.0) <= 0 else brentq(excess, 0, 100)
    assert exact - 1e-3 <= spent  # what the sum over the plane is off
    if angle == 0:
        assert spent <= 1.005 * exact


def test_replacing_costs_more_than_adding_and_at_most_twice_the_shift():
    composition = ((subsampled(0.1, 0.5), 40),)
    added = epsilon(composition, DELTA)
    replaced = epsilon(composition, DELTA, "replace_one")
    doubled = epsilon(((subsampled(0.1, 1.0), 40),), DELTA)
    assert added < replaced <= doubled * 1.01
    with pytest.raises(ValueError, match="replace_one"):  # not proven of mixtures
        epsilon(((ShiftLaw((0.0, 0.1, 0.2), (0.5, 0.25, 0.25)), 3),), DELTA, "replace_one")
    whole = epsilon(((subsampled(1.0, 0.5), 4),), DELTA, "replace_one")
    assert whole == pytest.approx(dp_accounting.get_epsilon_gaussian(0.5, DELTA))


def test_ends_of_the_range():
    assert gaussian_epsilon(1.0, 0.5, 0, DELTA) == 0
    assert gaussian_epsilon(0.0, 0.5, 1, DELTA) == inf
    assert epsilon((), DELTA) == 0
    assert least_noise(((subsampled(0.3), 0),), 1.0, DELTA) == 0
    assert epsilon(((ShiftLaw((0.0,), (1.0,)), 5),), DELTA) == 0


EXTREMES = [
    (q, z, n)
    for q, n in [(1.0, 1), (1.0, 100_000), (0.5, 1), (1e-3, 100_000), (1e-6, 1), (1e-6, 100_000)]
    for z in (0.003, 0.3, 30.0, 3e4)
    if q * n < 1 or q == 1 or z > 0.003
]


@pytest.mark.parametrize(("q", "z", "n"), EXTREMES)
def test_extremes_are_finite_and_never_underestimated(q, z, n):
    spent = gaussian_epsilon(z, q, n, DELTA)
    assert isfinite(spent)
    assert spent >= threshold_bound(z, q, n, DELTA) * (1 - 1e-6)


@pytest.mark.parametrize(
    ("q", "n", "target"),
    [(1.0, n, target) for n in (1, 100_000) for target in (1e-3, 300.0, 1e5)]
    + [(0.01, 1000, 1e-3), pytest.param(0.01, 1000, 300.0, marks=pytest.mark.full)]
    + [(1.0, 300, 1.0), (0.02, 1000, 1.0), (0.3, 60, 0.5), (1.0, 1, 8.0), (0.01, 4000, 0.1)],
)
def test_calibrated_noise_is_enough_and_minimal_up_to_the_extremes(q, n, target):
    z = least_noise(((subsampled(q), n),), target, DELTA)
    assert gaussian_epsilon(z, q, n, DELTA) <= target
    assert gaussian_epsilon(0.99 * z, q, n, DELTA) > target
    assert threshold_bound(z, q, n, DELTA) <= target


@settings(max_examples=12, deadline=None)
@given(st.floats(0.8, 8), st.floats(0.01, 0.6), st.integers(1, 200), st.sampled_from([1e-5, 1e-3]))
def test_more_noise_fewer_releases_and_rarer_sampling_never_cost_more(z, q, n, delta):
    spent = gaussian_epsilon(z, q, n, delta)
    # The grid of losses may differ between the two.
    slack = 1 + 1e-3
    assert gaussian_epsilon(1.1 * z, q, n, delta) <= spent * slack + 1e-9
    assert gaussian_epsilon(z, 0.9 * q, n, delta) <= spent * slack + 1e-9
    assert gaussian_epsilon(z, q, n + 5, delta) >= spent / slack - 1e-9


@pytest.mark.parametrize("shift", [6.911107726093428, 1.0])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_a_certain_shift_beside_a_random_one(shift, adjacency):
    """The first is one at which dp-accounting's mixtures lose a bound to rounding. Both releases
    cost at least what the certain one does, and at most what they do if both were certain."""
    certain, random = subsampled(1.0, shift / 4), subsampled(0.1, shift / 8)
    both = epsilon(((certain, 1), (random, 3)), 1e-5, adjacency)
    least = epsilon(((certain, 1),), 1e-5, adjacency)
    most = epsilon(((certain, 1), (subsampled(1.0, shift / 8), 3)), 1e-5, adjacency)
    assert least < both < most
    alone = epsilon(((subsampled(1.0, shift), 1), (subsampled(0.1, shift), 1)), 1e-5, adjacency)
    assert 0 < alone < 1e3


@settings(max_examples=20)
@given(
    shifts=st.lists(st.floats(0.05, 8), min_size=1, max_size=6, unique=True).map(sorted),
    weights=st.lists(st.floats(0.01, 1), min_size=7, max_size=7),
    stays=st.floats(0, 0.999),
    count=st.integers(1, 20),
)
def test_same_curve_as_dp_accounting(shifts, weights, stays, count):
    """With and without a chance that the record stays away, whatever that leaves to the rest."""
    assume(stays or len(shifts) > 1)  # one certain shift is no mixture
    moves = np.array(weights[: len(shifts)])
    law = [0.0, *shifts] if stays else shifts
    chances = [stays, *(1 - stays) * moves / moves.sum()] if stays else moves / moves.sum()
    spacing = max(shifts) / 40
    ours = mixture_distribution(law, chances, spacing).self_compose(count)
    try:
        theirs = from_mixture_gaussian_mechanism(
            1.0, law, chances, value_discretization_interval=spacing
        ).self_compose(count)
    except (ValueError, TypeError):  # it lost the bounds of a root to rounding, or the root
        reject()
    for delta in (1e-2, 1e-5):
        expected = theirs.get_epsilon_for_delta(delta)
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("largest", [1e-10, 1e-5, 400.0])
def test_shifts_of_any_size(largest):
    """Far smaller and larger than rounding lets Newton's method settle."""
    law = ([0.0, largest / 2, largest], [0.9, 0.05, 0.05])
    grid = {"value_discretization_interval": (largest**2 / 2 + 9 * largest) / 500}
    spent = mixture_distribution(*law, *grid.values()).get_epsilon_for_delta(1e-2)
    whole = from_mixture_gaussian_mechanism(1.0, [largest], [1.0], **grid)
    assert 0 <= spent <= whole.get_epsilon_for_delta(1e-2) * (1 + 1e-9)
