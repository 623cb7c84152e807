"""Bytes by formula and bytes as they are sent."""

import pytest
from benchmarks.secure_sums import size
from tests.secure_aggregation.rounds import inputs_of, terms_of

from m2fdp.secure_aggregation.messages import Mailbox, Roster, UnmaskRequest
from m2fdp.secure_aggregation.model_sums import overhead_bits
from m2fdp.secure_aggregation.protocol import secure_sum


def test_by_hand():
    # 10 members: two keys of 32 bytes; 9 parcels of an id, two shares of 33 bytes and a tag of 16;
    # 10 shares with an id.
    assert overhead_bits(10) == 8 * (64 + 9 * (4 + 66 + 16) + 10 * (4 + 33))


@pytest.mark.parametrize("n", [2, 6, 11])
def test_members_send_what_the_formula_says(n):
    terms, sent = terms_of(n), []
    secure_sum(terms, inputs_of(terms), tap=sent.append)
    of_members = [one for one in sent if not isinstance(one, Roster | Mailbox | UnmaskRequest)]
    assert len(of_members) == 4 * n
    assert 8 * sum(map(size, of_members)) == n * (overhead_bits(n) + 32 * terms.n_parameters)


def test_zones_send_less_than_one_large_group():
    """H Sec. IV-A: s zones of m, and one group of s, against one of s·m."""
    zones, servers = 50 * overhead_bits(5), 10 * overhead_bits(10)
    assert 7 < 50 * overhead_bits(50) / (zones + servers) < 9
