"""Keys and masks against their standards' own examples, and keys that are refused."""

import hmac
from itertools import product

import numpy as np
import pytest
from tests.secure_aggregation.rounds import terms_of

from m2fdp.secure_aggregation.failures import KeyRefused, TamperedShare
from m2fdp.secure_aggregation.keys import (
    agree,
    copied,
    derive,
    info,
    key_pair,
    refused_keys,
    seal,
    unseal,
)
from m2fdp.secure_aggregation.masks import add_pair_mask, keystream, pair_key
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
    alice, bob = key_pair(ALICE), key_pair(BOB)
    assert alice.public == ALICE_PUBLIC
    assert agree(alice, bob.public, 1) == agree(bob, alice.public, 0) == TOGETHER
    assert alice.secret() == ALICE


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
    alice, bob = key_pair(ALICE), key_pair(BOB)
    words = np.arange(20, dtype=np.uint32)
    add_pair_mask(words, pair_key(alice, bob.public, 2, terms), 0, 2)
    assert not np.array_equal(words, np.arange(20))
    add_pair_mask(words, pair_key(bob, alice.public, 0, terms), 2, 0)
    assert words.tolist() == list(range(20))


@pytest.mark.parametrize("number", REFUSED.values(), ids=REFUSED)
def test_keys_that_no_honest_member_has(number):
    public = number.to_bytes(32, "little")
    with pytest.raises(KeyRefused, match="member 7: of low order, or none"):
        agree(key_pair(ALICE), public, 7)
    honest = (ALICE_PUBLIC, key_pair(BOB).public)
    other = (key_pair(bytes(32)).public, public)
    assert refused_keys({3: honest, 7: other}) == {7: "of low order, or none"}


def test_whoever_shows_a_key_that_another_shows_is_refused():
    alice, bob, eve, dan = (key_pair(bytes([k] * 32)).public for k in range(4))
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


def test_what_is_secret_is_not_shown():
    assert "private" not in repr(key_pair(ALICE))
