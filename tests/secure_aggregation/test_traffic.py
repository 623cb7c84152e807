"""Bytes by formula and bytes as they are sent."""

import pytest
from benchmarks.secure_sums import size
from tests.secure_aggregation.rounds import Traffic, Turnout, everybody, inputs_of, terms_of

from m2fdp.secure_aggregation.messages import (
    Mailbox,
    MaskedVector,
    PublicKeys,
    Roster,
    SealedShares,
    UnmaskRequest,
    UnmaskShares,
)
from m2fdp.secure_aggregation.protocol import secure_sum
from m2fdp.secure_aggregation.terms import Stage
from m2fdp.secure_aggregation.traffic import (
    MemberBytes,
    member_bytes,
    overhead_bits,
)

# A member's number, two public keys, two sealed shares, one open share; all with whose they are.
ID, KEYS, PARCEL, SHARE = 4, 64, 4 + 2 * 33 + 16, 4 + 33


def server_bytes(turnout):
    """What the server sends to the members together: rosters, mailboxes and requests."""
    return (
        turnout.listed**2 * (ID + KEYS),
        turnout.shared * (turnout.shared - 1) * PARCEL,
        turnout.masked * turnout.shared * ID,
    )


def members_bytes(turnout):
    """What all members send together: of 20 parameters."""
    return (
        turnout.announced * KEYS
        + turnout.shared * (turnout.listed - 1) * PARCEL
        + turnout.masked * 20 * 4
        + turnout.answered * turnout.shared * SHARE
    )


def test_by_hand():
    # 10 members: two keys of 32 bytes; 9 parcels of an id, two shares of 33 bytes and a tag of 16;
    # 7,840 words; 10 shares with an id.
    assert member_bytes(10, 7840) == MemberBytes(64, 9 * 86, 31_360, 10 * 37)
    assert overhead_bits(10) == 8 * (64 + 774 + 370)
    assert server_bytes(everybody(10)) == (6800, 7740, 400)


def test_every_kind_of_message_has_the_size_of_the_formula():
    terms = terms_of(6)
    heard = {}

    def hear(message):
        heard.setdefault(type(message), []).append(message)

    secure_sum(terms, inputs_of(terms), tap=hear)
    turnout = everybody(6)
    each = member_bytes(6, 20)
    for kind, expected in (
        (PublicKeys, each.keys),
        (SealedShares, each.shares),
        (MaskedVector, each.vector),
        (UnmaskShares, each.unmasking),
    ):
        assert [size(message) for message in heard[kind]] == [expected] * 6
    # Rosters and requests are one message to all.
    rosters, mailboxes, requests = server_bytes(turnout)
    assert [size(one) * 6 for one in heard[Roster]] == [rosters]
    assert [size(one) * 6 for one in heard[UnmaskRequest]] == [requests]
    assert sum(size(one) for one in heard[Mailbox]) == mailboxes
    # A message is what its parts are.
    keys, sealed = heard[PublicKeys][0], heard[SealedShares][0]
    assert len(keys.sealing) == len(keys.masking) == 32
    assert {len(parcel) for _, parcel in sealed.parcels} == {82}


@pytest.mark.parametrize(
    "silent, turnout",
    [
        ({}, everybody(10)),
        ({1: Stage.KEYS}, Turnout(9, 9, 9, 9, 9)),
        ({1: Stage.SHARES, 3: Stage.VECTOR}, Turnout(10, 10, 9, 8, 8)),
        ({1: Stage.UNMASKING, 3: Stage.VECTOR, 8: Stage.VECTOR}, Turnout(10, 10, 10, 8, 7)),
        ({0: 0, 4: 1, 9: 2, 5: 3}, Turnout(9, 9, 8, 7, 6)),
    ],
)
def test_the_driver_sends_what_the_formula_says(silent, turnout):
    terms, traffic = terms_of(10, 6), Traffic()
    secure_sum(terms, inputs_of(terms), silent, tap=traffic)
    assert traffic.turnout == turnout
    assert traffic.members_bytes == members_bytes(turnout)
    assert traffic.server_bytes == sum(server_bytes(turnout))
    up = turnout.announced + turnout.shared + turnout.masked + turnout.answered
    assert traffic.messages == up + turnout.listed + turnout.shared + turnout.masked


def test_zones_send_less_than_one_large_group():
    """H Sec. IV-A: s zones of m, and one group of s, against one of s·m."""
    flat = 50 * member_bytes(50, 0).overhead
    zones = 50 * member_bytes(5, 0).overhead
    servers = 10 * member_bytes(10, 0).overhead
    assert 7 < flat / (zones + servers) < 9
