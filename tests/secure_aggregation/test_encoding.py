"""The grid: how fine, what it does to a norm, and that no sum leaves it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.secure_aggregation.rounds import terms_of

from m2fdp.core.errors import InputError
from m2fdp.secure_aggregation.terms import Input, Scale, Terms, decode, encode, refusal


def alone(vector, terms, noise=None):
    return decode(encode(Input(np.array(vector), noise), terms), terms.points)


def test_points_by_hand():
    # (2^31 - 1) / (10 · (1 + 8 · 0.5)) = 42,949,672.94
    assert Scale(1.0, 0.5).points(10) == 42_949_672
    assert Scale(2.0, 0.0).points(50) == 21_474_836
    assert Scale(0.0, 1.0).points(2) == 134_217_727


def test_too_coarse_a_grid_is_refused_in_one_line():
    assert Scale(2**23 / 50 - 1, 0.0).points(50) == 256
    with pytest.raises(InputError) as error:
        Scale(2**23 / 50 + 1, 0.0).points(50)
    text = str(error.value)
    assert text.startswith("secure_aggregation.protocol = 'masks': leaves 255 grid points a unit")
    assert "\n" not in text


WITHOUT_NOISE = [(bound, 0.0) for bound in (np.inf, np.nan, 0.0, 1e-300)]


@pytest.mark.parametrize("scale", [*WITHOUT_NOISE, (1.0, np.inf), (-1.0, 1.0), (1.0, -0.1)])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(InputError, match="needs vectors of a bounded norm"):
        Terms(terms_of(3).group, Scale(*scale), 20, "round 1")


def test_words_by_hand():
    terms = terms_of(2, n_parameters=4, deviation=0.0)
    f = 2**30 - 1  # (2^31 - 1) // 2
    assert terms.points == f
    given = Input(np.array([1.0, 0.0, 0.75 / f, -1.75 / f]))
    assert encode(given, terms).tolist() == [f, 0, 0, 2**32 - 1]
    assert encode(Input(np.array([0.0, -1.0, 0.0, 0.0])), terms).tolist() == [0, 2**32 - f, 0, 0]
    noisy = terms_of(2, n_parameters=4, deviation=1.0)
    f = noisy.points
    noise = np.array([1.4, 1.6, -1.4, -1.6]) / f
    words = encode(Input(np.array([2.9, 0.0, -2.9, 0.0]) / f, noise), noisy)
    assert words.view(np.int32).tolist() == [4, 2, -4, -2]


@pytest.mark.parametrize("n", [2, 3, 10, 50, 333])
@pytest.mark.parametrize("sign", [1, -1])
def test_everybody_at_the_edge_stays_on_the_grid(n, sign):
    terms = terms_of(n, n_parameters=1, deviation=0.7)
    edge = Input(np.array([sign * 1.0]), np.array([sign * 8 * 0.7]))
    assert refusal(edge, terms) is None
    # The sums in Python's integers, and how they wrap.
    total = n * int(encode(edge, terms).view(np.int32)[0])
    assert abs(total) < 2**31
    assert abs(total / terms.points - sign * n * 6.6) <= n / terms.points


def test_nothing_is_zero():
    terms = terms_of(3, deviation=0.0)
    assert not encode(Input(np.zeros(20)), terms).any()
    assert alone(np.full(20, -1e-12), terms).tolist() == [0.0] * 20


vectors = arrays(np.float64, 20, elements=st.floats(-1, 1)).map(
    lambda x: x / max(1.0, float(np.linalg.norm(x)))
)


@given(vectors, st.integers(2, 200))
def test_a_coordinate_loses_less_than_a_point(vector, n):
    terms = terms_of(n, deviation=3.0)
    lost = vector - alone(vector, terms)
    assert (np.abs(lost) <= (1 + 1e-9) / terms.points).all()
    # Towards zero; up to the last bit of the product.
    assert (lost * np.sign(vector) >= -1e-15).all()


@given(vectors, vectors, st.lists(st.booleans(), min_size=20, max_size=20), st.integers(2, 200))
def test_what_a_vector_without_noise_moves_by_grows_by_the_root_of_its_coordinates(x, y, same, n):
    terms = terms_of(n, deviation=50.0)  # a coarse grid
    y = np.where(same, x, y)
    moved = np.linalg.norm(alone(x, terms) - alone(y, terms))
    more = np.sqrt(np.count_nonzero(x != y)) / terms.points
    assert moved <= (np.linalg.norm(x - y) + more) * (1 + 1e-12)


@given(st.integers(2, 200), st.floats(0.1, 50), st.integers(1, 20), st.integers(1, 1000))
def test_that_growth_is_attained(n, deviation, coordinates, at):
    """x on the grid and its neighbour a hair nearer to zero: 2e-6 of a point become a point."""
    terms = terms_of(n, deviation=deviation)
    x = np.zeros(20)
    x[:coordinates] = (at + 1e-6) / terms.points
    y = np.where(x > 0, (at - 1e-6) / terms.points, 0)
    moved = np.linalg.norm(alone(x, terms) - alone(y, terms))
    assert moved == pytest.approx(np.sqrt(coordinates) / terms.points, rel=1e-9)
    assert np.linalg.norm(x - y) < 1e-5 * moved


noises = arrays(np.float64, 20, elements=st.floats(-3, 3))


@given(vectors, noises, st.integers(2, 200))
def test_rounding_after_the_noise_reads_their_sum_alone(vector, noise, n):
    """So the message is what it would be without a grid, rounded: nothing that x moves by grows."""
    terms = terms_of(n)
    seen = encode(Input(vector, noise), terms)
    assert np.array_equal(seen, encode(Input(np.zeros(20), vector + noise), terms))
    off = decode(seen, terms.points) - (vector + noise)
    assert (np.abs(off) <= (0.5 + 1e-6) / terms.points).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_norm_of_the_bound_in_the_arithmetic_of_the_device(dtype):
    vector = np.random.default_rng(0).normal(size=20).astype(dtype)
    vector /= np.linalg.norm(vector)
    terms = terms_of(3)
    assert refusal(Input(vector), terms) is None
    np.testing.assert_allclose(alone(vector, terms), vector, atol=1 / terms.points)


@pytest.mark.parametrize("longer", [1 + 9e-7, 1 + 1e-3, 1e100])
def test_what_is_longer_than_the_bound_is_shortened_and_never_left_out(longer):
    """Who is in a sum would else tell of records, before any noise: a norm passes its bound by a
    hair in 32 bits, or doesn't, as a single record has it."""
    one = terms_of(3, n_parameters=1, deviation=0.0)
    assert refusal(Input(np.array([longer])), one) is None
    assert 1 - 1 / one.points <= alone([longer], one)[0] <= 1.0
    terms = terms_of(3)
    vector = np.full(20, longer / np.sqrt(20))
    assert refusal(Input(vector), terms) is None
    assert np.linalg.norm(alone(vector, terms)) <= 1.0 + np.sqrt(20) / terms.points


@pytest.mark.parametrize(
    "vector, noise, reason",
    [
        (np.zeros(19), None, "its shape is (19,), not (20,)"),
        (np.zeros((20, 1)), None, "its shape is (20, 1), not (20,)"),
        (np.full(20, np.nan), None, "it is not finite"),
        (np.array([np.inf] + [0.0] * 19), None, "it is not finite"),
        (np.array([-np.inf] + [0.0] * 19), None, "it is not finite"),
        (np.zeros(20), np.zeros(19), "its noise has the shape (19,), not (20,)"),
        (np.zeros(20), np.full(20, np.nan), "its noise is beyond 8 deviations"),
        (np.zeros(20), np.full(20, 4.01), "its noise is beyond 8 deviations"),
    ],
)
def test_what_a_device_does_not_mask(vector, noise, reason):
    assert refusal(Input(vector, noise), terms_of(3)) == reason
