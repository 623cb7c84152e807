"""Keys and masks against their standards' own examples, keys that are refused, and shares: any t
rebuild, t - 1 fit every secret."""

import hmac
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.secure_aggregation.rounds import private_key, seeded, terms_of

from m2fdp.secure_aggregation.keys import (
    PRIME,
    SHARE_BYTES,
    add_pair_mask,
    agree,
    copied,
    derive,
    info,
    keystream,
    pair_key,
    public_of,
    rebuild,
    rebuild_all,
    refused_keys,
    seal,
    split,
    unseal,
    weights_at_zero,
)
from m2fdp.secure_aggregation.messages import KeyRefused, SharesDisagree, TamperedShare
from m2fdp.secure_aggregation.terms import Group, Scale, Terms

# RFC 7748, section 6.1.
ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
TOGETHER = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
# RFC 8439, appendix A.1, number 1: key, nonce and counter are zero.
ZERO_STREAM = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")

FIELD = 2**255 - 19
OF_ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
REFUSED = {
    "zero": 0,
    "one": 1,
    "order 2": FIELD - 1,
    "order 8": OF_ORDER_8[0],
    "the other of order 8": OF_ORDER_8[1],
    "zero again": FIELD,
    "one again": FIELD + 1,
    "an honest key with the sign that X25519 ignores": int.from_bytes(ALICE_PUBLIC, "little")
    | 1 << 255,
}


def test_agreement_is_that_of_the_standard():
    alice, bob = private_key(ALICE), private_key(BOB)
    assert public_of(alice) == ALICE_PUBLIC
    assert agree(alice, public_of(bob), 1) == agree(bob, ALICE_PUBLIC, 0) == TOGETHER


def test_derivation_is_that_of_the_standard():
    """RFC 5869 in two lines: no salt is a salt of zeros, and one block is enough."""
    terms = terms_of(3)
    extracted = hmac.digest(bytes(32), TOGETHER, "sha256")
    expected = hmac.digest(extracted, info("share", terms) + b"\x01", "sha256")
    assert derive(TOGETHER, "share", terms) == expected


def test_the_stream_is_that_of_the_standard():
    words = keystream(bytes(32), 8)
    assert words.dtype == np.uint32
    assert words.astype("<u4").tobytes() == ZERO_STREAM


def test_purpose_round_and_group_can_not_be_mistaken():
    texts = ["", "a", "b", "ab", "a\0", "aa"]
    derived = {
        info(purpose, Terms(Group(group, 3, 2), Scale(1.0, 0.0), 1, label))
        for purpose, label, group in product(texts, texts, texts)
    }
    assert len(derived) == 6**3


def test_both_sides_make_the_same_mask_and_add_opposite_ones():
    terms = terms_of(3)
    alice, bob = private_key(ALICE), private_key(BOB)
    words = np.arange(20, dtype=np.uint32)
    add_pair_mask(words, pair_key(alice, public_of(bob), 2, terms), 0, 2)
    assert not np.array_equal(words, np.arange(20))
    add_pair_mask(words, pair_key(bob, ALICE_PUBLIC, 0, terms), 2, 0)
    assert words.tolist() == list(range(20))


@pytest.mark.parametrize("number", REFUSED.values(), ids=REFUSED)
def test_keys_that_no_honest_member_has(number):
    public = number.to_bytes(32, "little")
    with pytest.raises(KeyRefused, match="member 7: of low order, or none"):
        agree(private_key(ALICE), public, 7)
    honest = (ALICE_PUBLIC, public_of(private_key(BOB)))
    other = (public_of(private_key(bytes(32))), public)
    assert refused_keys({3: honest, 7: other}) == {7: "of low order, or none"}


def test_whoever_shows_a_key_that_another_shows_is_refused():
    alice, bob, eve, dan = (public_of(private_key(bytes([k] * 32))) for k in range(4))
    assert copied({0: (alice, bob), 1: (eve, dan)}) == []
    assert copied({0: (alice, bob), 1: (eve, bob), 2: (dan,)}) == [0, 1]
    # One's mask key as the other's sealing key, and a member with one key for both.
    assert copied({0: (alice, bob), 1: (bob, eve)}) == [0, 1]
    assert copied({0: (alice, alice), 1: (bob, eve)}) == [0]
    assert refused_keys({0: (alice, bob), 1: (eve, bob)}) == {0: "shown twice", 1: "shown twice"}


def test_a_sealed_text_is_of_its_sender_for_its_recipient():
    sealed = seal(TOGETHER, 1, 2, b"shares")
    assert unseal(TOGETHER, 1, 2, sealed) == b"shares"
    flipped = bytes([sealed[0] ^ 1]) + sealed[1:]
    for key, sender, recipient, text in [
        (TOGETHER, 1, 2, flipped),
        (TOGETHER, 1, 2, sealed[:-1]),
        (TOGETHER, 1, 2, b""),
        (TOGETHER, 2, 1, sealed),
        (TOGETHER, 1, 3, sealed),
        (ALICE, 1, 2, sealed),
    ]:
        with pytest.raises(TamperedShare) as error:
            unseal(key, sender, recipient, text)
        assert (error.value.sender, error.value.recipient) == (sender, recipient)


def test_the_two_directions_of_a_pair_have_streams_of_their_own():
    assert seal(TOGETHER, 1, 2, bytes(20))[:20] != seal(TOGETHER, 2, 1, bytes(20))[:20]


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
