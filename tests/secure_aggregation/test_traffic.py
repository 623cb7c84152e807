"""Bytes by formula and bytes as they are sent."""

import pytest
from tests.secure_aggregation.rounds import Traffic, Turnout, everybody, inputs_of, terms_of

from m2fdp.secure_aggregation.protocol import secure_sum
from m2fdp.secure_aggregation.terms import Stage
from m2fdp.secure_aggregation.traffic import overhead_bits

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
    # 10 shares with an id.
    assert overhead_bits(10) == 8 * (64 + 774 + 370)
    assert server_bytes(everybody(10)) == (6800, 7740, 400)


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
    zones, servers = 50 * overhead_bits(5), 10 * overhead_bits(10)
    assert 7 < 50 * overhead_bits(50) / (zones + servers) < 9
