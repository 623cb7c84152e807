"""Messages of a sum that hides its terms, as bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.deployment import masked_messages as messages
from m2fdp.deployment.masked_messages import NoMessage, pack, unpack
from m2fdp.secure_aggregation.messages import MaskedVector, PublicKeys, UnmaskRequest, UnmaskShares

REQUEST = UnmaskRequest((0, 2, 3), (1, 4))
PARTS = st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=40), max_size=6)
READERS = (
    lambda content: messages.unpack_keys(0, content),
    lambda content: unpack(content, "mailbox"),
    lambda content: messages.unpack_words(0, content),
    messages.unpack_request,
    lambda content: messages.unpack_unmasking(0, content, REQUEST),
)


@given(PARTS)
def test_parts_are_read_as_they_were_written(parts):
    assert unpack(pack(parts.items()), "parts") == parts


def test_messages_are_read_as_they_were_written():
    keys = PublicKeys(3, bytes(range(32)), bytes(range(1, 33)))
    packed = messages.pack_keys(keys, b"signature", b"certificate")
    assert messages.unpack_keys(3, packed) == (keys, b"signature", b"certificate")
    assert messages.unpack_request(messages.pack_request(REQUEST)) == REQUEST
    words = np.array([0, 1, 2**32 - 1], np.uint32)
    packed = messages.pack_words(MaskedVector(2, words))
    assert packed == b"\0\0\0\0\1\0\0\0\xff\xff\xff\xff", "little endian"
    np.testing.assert_array_equal(messages.unpack_words(2, packed).words, words)
    shares = UnmaskShares(0, {0: b"a", 2: b"b", 3: b"c"}, {1: b"d", 4: b"e"})
    assert messages.unpack_unmasking(0, messages.pack_unmasking(shares), REQUEST) == shares


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_none(content):
    for read in READERS:
        try:
            read(content)
        except NoMessage as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (READERS[0], pack([(0, bytes(64)), (1, b"")])),
        (READERS[0], pack([(0, bytes(63)), (1, b""), (2, b"")])),
        (READERS[1], pack([(1, b"a"), (1, b"b")])),
        (READERS[1], pack([(1, b"abc")])[:-1]),
        (READERS[1], pack([(1, b"abc")]) + b"cut"),
        (READERS[2], bytes(7)),
        (READERS[3], pack([(0, b"+"), (1, b"?")])),
        (READERS[4], pack([(0, b"a"), (1, b"b")])),
    ],
)
def test_what_is_no_message_is_refused(read, content):
    with pytest.raises(NoMessage, match="bytes that are no"):
        read(content)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("keys", pack(enumerate((bytes(64), b"signature", bytes(5000))))),
        ("keys", bytes(3)),
        ("shares", pack([(1, bytes(82)), (2, bytes(5000))])),
        ("survivors", bytes(5000)),
        ("unmasking", bytes(3)),
        ("masked", bytes(8)),
        ("model", np.array([1, np.nan, 2], "<f4").tobytes()),
    ],
)
def test_a_child_s_answer_has_the_form_of_its_kind_and_a_size_that_others_take(kind, content):
    """What one sends is passed on to all, who take no more than the plan has."""
    with pytest.raises(NoMessage, match="bytes that are no"):
        messages.check_answer(kind, content, 3)
    messages.check_answer("masked", bytes(12), 3)
    messages.check_answer("shares", pack([(1, bytes(82))]), 3)
