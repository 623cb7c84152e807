"""Shares: any t rebuild, t - 1 fit every secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.secure_aggregation.rounds import seeded

from m2fdp.secure_aggregation.failures import SharesDisagree
from m2fdp.secure_aggregation.shares import (
    PRIME,
    SHARE_BYTES,
    rebuild,
    rebuild_all,
    split,
    weights_at_zero,
)

SECRET = bytes(range(32))
secrets = st.binary(min_size=32, max_size=32)


def numbers(shares):
    return [int.from_bytes(share) for (share,) in shares]


def test_the_prime_is_one():
    # 8 divides PRIME - 1 and 16 does not: Miller and Rabin's test with 20 bases.
    for base in range(2, 22):
        powers = [pow(base, (PRIME - 1) // 8 * 2**k, PRIME) for k in range(3)]
        assert powers[0] == 1 or PRIME - 1 in powers
    assert 2**256 < PRIME < 2 ** (8 * SHARE_BYTES)


def test_a_line_by_hand():
    # t = 2 and the coefficient 3: 5 + 3x at x = 1, 2, 7.
    shares = split([(5).to_bytes(32)], 2, [1, 2, 7], lambda size: (3).to_bytes(size))
    assert numbers(shares) == [8, 11, 26]
    assert weights_at_zero((1, 2)) == (2, PRIME - 1)  # 2·8 - 11 = 5
    assert rebuild([shares[0][0], shares[1][0]], (2, PRIME - 1)) == (5).to_bytes(32)


@given(st.lists(secrets, min_size=1, max_size=3), st.data())
def test_any_t_shares_rebuild(kept, data):
    n = data.draw(st.integers(2, 12))
    threshold = data.draw(st.integers(1, n))
    points = data.draw(st.lists(st.integers(1, 60), min_size=n, max_size=n, unique=True))
    shares = dict(zip(points, split(kept, threshold, points, seeded(0)), strict=True))
    chosen = data.draw(st.permutations(points))[:threshold]
    held = {point: dict(enumerate(shares[point])) for point in chosen}
    assert rebuild_all(held, threshold) == dict(enumerate(kept))


@given(secrets, st.integers(2, 9))
def test_one_share_less_fits_every_secret(candidate, threshold):
    """Whatever the candidate, one value of the missing share makes it the secret."""
    shares = split([SECRET], threshold, range(1, threshold + 1), seeded(0))
    weights = weights_at_zero(tuple(range(1, threshold + 1)))
    known = sum(w * s for w, s in zip(weights[:-1], numbers(shares[:-1]), strict=True))
    missing = (int.from_bytes(candidate) - known) * pow(weights[-1], -1, PRIME) % PRIME
    completed = [*(share for (share,) in shares[:-1]), missing.to_bytes(SHARE_BYTES)]
    assert rebuild(completed, weights) == candidate


def fewer_rebuild(threshold, degree):
    """Whether t - 1 shares of a polynomial of that degree + 1 coefficients rebuild the secret."""
    shares = split([SECRET], degree, range(1, threshold), seeded(0))
    weights = weights_at_zero(tuple(range(1, threshold)))
    return rebuild([share for (share,) in shares], weights) == SECRET


def test_one_share_less_does_not_rebuild_and_of_too_low_a_degree_does():
    assert not fewer_rebuild(5, 5)
    assert fewer_rebuild(5, 4)


def test_secrets_are_shared_by_polynomials_of_their_own():
    # Twice the same secret, and two rounds.
    (one, other), (again, _) = (split([SECRET, SECRET], 2, [1], seeded(s))[0] for s in (0, 1))
    assert len({one, other, again}) == 3


def test_what_is_no_secret_is_told():
    with pytest.raises(SharesDisagree):
        rebuild([(2**256).to_bytes(SHARE_BYTES)], (1,))
