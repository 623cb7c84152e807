"""Elections: uniform as long as one nonce is honest, and what a build without commitments does.

All seeds are fixed, so each of these tests either fails always or never; the rates in the
comments say how likely a correct build was to fail when the seeds were chosen.
"""

import hashlib
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chisquare
from tests.secure_aggregation.rounds import seeded

from m2fdp.zones import lots
from m2fdp.zones.lots import (
    NONCE_BYTES,
    Candidate,
    Election,
    NobodyElected,
    commitment,
    elect,
    hold,
    winner,
)
from m2fdp.zones.offices import Offices, exposure

DRAWS = 10_000


class Stubborn(Candidate):
    """Always the same nonce."""

    def commit(self):
        self.nonce = bytes(NONCE_BYTES)
        return commitment(self.nonce, self.number)


class Last(Candidate):
    """Waits for the others' nonces and shows one with which it wins."""

    def reveal(self, shown):
        numbers = sorted([*shown, self.number])
        sum_of_others = sum(int.from_bytes(nonce) for nonce in shown.values())
        place = (numbers.index(self.number) - sum_of_others) % len(numbers)
        return place.to_bytes(NONCE_BYTES)


def leaders(make, draws=DRAWS, candidates=10):
    nonces = seeded(0)
    return np.array([hold(make(candidates, nonces)).leader for _ in range(draws)])


def uniform(drawn, candidates=10):
    """Chi squared; wrong for a uniform law with probability 1e-3."""
    return chisquare(np.bincount(drawn, minlength=candidates)).pvalue > 1e-3


def all_honest(n, nonces):
    return [Candidate(u, nonces) for u in range(n)]


def one_honest(n, nonces):
    return [Candidate(u, nonces) if u == 3 else Stubborn(u, nonces) for u in range(n)]


def last_chooses(n, nonces):
    return [*all_honest(n - 1, nonces), Last(n - 1, nonces)]


@pytest.mark.parametrize("make", [all_honest, one_honest])
def test_leaders_are_uniform(make):
    assert uniform(leaders(make))


def test_the_simulated_election_is_uniform_and_repeats():
    nonces = np.random.default_rng(5).bytes
    assert uniform(np.array([elect(range(10), nonces).leader for _ in range(DRAWS)]))
    numbers = [7, 2, 30]
    assert elect(numbers, seeded(1)) == elect(numbers, seeded(1))
    assert {elect(numbers, seeded(k)).leader for k in range(50)} == {2, 7, 30}


def test_who_shows_another_nonce_than_its_own_is_left_out():
    result = hold(last_chooses(10, seeded(0)))
    assert result.left_out == (9,) and result.leader != 9
    assert result.draws == 2


def test_without_commitments_the_last_one_chooses(monkeypatch):
    """The broken build, which the test of uniformity must reject."""
    monkeypatch.setattr(lots, "opens", lambda *_: True)
    drawn = leaders(last_chooses, draws=500)
    assert set(drawn) == {9}
    assert not uniform(drawn)


def test_leaders_by_too_few_bits_are_found(monkeypatch):
    """Five bits of one nonce modulo 10: the first two places have 4/32, the others 3/32."""
    monkeypatch.setattr(lots, "winner", lambda nonces: nonces[0][0] % 32 % 10)
    assert not uniform(leaders(all_honest))


def test_the_winner_by_hand():
    nonces = {4: (5).to_bytes(32), 9: (2**255).to_bytes(32), 6: (1).to_bytes(32)}
    # 2^255 = 2 mod 3; 5 + 2 + 1 = 8 = 2 mod 3: the third of 4, 6, 9.
    assert winner(nonces) == 9
    assert commitment(b"n" * 32, 258) == hashlib.sha256(b"n" * 32 + b"\0\0\1\2").digest()


@pytest.mark.parametrize("k", [1, 2, 10])
def test_messages_of_an_election(k):
    result = elect(range(k), seeded(0))
    assert (result.draws, result.left_out, result.messages) == (1, (), 2 * k * (k - 1))


def test_who_falls_silent_is_left_out_and_counted():
    result = elect(range(5), seeded(0), silent={1, 4})
    assert result.left_out == (1, 4) and result.leader in (0, 2, 3)
    # 5 commitments and 3 nonces to 4 others each, then 3 of each to 2.
    assert (result.draws, result.messages) == (2, 5 * 4 + 3 * 4 + 2 * 3 * 2)
    with pytest.raises(NobodyElected, match="all 2 candidates"):
        elect(range(2), seeded(0), silent=range(2))


def test_a_repeated_draw_has_fresh_nonces():
    seen = []

    class Watched(Candidate):
        def reveal(self, shown):
            seen.append(self.nonce)
            return self.nonce

    nonces = seeded(0)
    result = hold([Watched(0, nonces), Watched(1, nonces), Candidate(2, nonces, silent=True)])
    assert isinstance(result, Election)
    assert len(set(seen)) == len(seen) == 4


def test_another_s_commitment_can_not_be_passed_on():
    class Copies(Candidate):
        def commit(self):
            return source.commitment

        def reveal(self, shown):
            return shown[0]

    class Source(Candidate):
        def commit(self):
            self.commitment = super().commit()
            return self.commitment

    source = Source(0, seeded(0))
    assert hold([source, Copies(1, seeded(1))]).left_out == (1,)


def exposed(present, leaders, coalition=1):
    """In one zone of all devices, over all rounds."""
    zones = np.zeros(present.shape[1], dtype=int)
    offices = Offices(zones, present, leaders[:, None], coalition)
    return exposure(offices, tuple(range(len(present))))


def test_exposure_by_hand():
    present = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    result = exposed(present, np.array([0, 0, 2, -1, 1]))
    assert result.served.tolist() == [2, 1, 1]
    # 0 sees: 1 served once while it was there. 1: 0 twice, 2 once. 2: 0 once, 1 once.
    assert result.under_one_other.tolist() == result.under_coalition.tolist() == [1, 2, 1]
    both = exposed(present, np.array([0, 0, 2, -1, 1]), coalition=2)
    assert both.under_coalition.tolist() == [1, 3, 2]
    assert both.under_one_other.tolist() == [1, 2, 1]


@given(st.data())
def test_exposure_of_any_rounds(data):
    """Against every coalition, one by one."""
    n = data.draw(st.integers(1, 5))
    rounds = data.draw(st.integers(0, 12))
    coalition = data.draw(st.integers(1, 5))
    row = st.lists(st.booleans(), min_size=n, max_size=n)
    present = np.array(data.draw(st.lists(row, min_size=rounds, max_size=rounds)), dtype=bool)
    present = present.reshape(rounds, n)
    leaders_ = np.array(
        [data.draw(st.sampled_from([-1, *np.flatnonzero(here)])) for here in present], dtype=int
    )
    result = exposed(present, leaders_, coalition)
    assert result.served.sum() == (leaders_ >= 0).sum()
    for j in range(n):
        others = [e for e in range(n) if e != j]
        seen = {
            size: max(
                (
                    int((present[:, j] & np.isin(leaders_, some)).sum())
                    for some in combinations(others, min(size, len(others)))
                ),
                default=0,
            )
            for size in (1, coalition)
        }
        assert result.under_one_other[j] == seen[1]
        assert result.under_coalition[j] == seen[coalition]
        # All others together serve whenever somebody else does.
        everybody = exposed(present, leaders_, n).under_coalition[j]
        assert everybody == (present[:, j] & (leaders_ >= 0) & (leaders_ != j)).sum()


def test_how_often_colluders_serve():
    """Zones of 10 over 200 rounds, 3 of them colluding: 60 rounds of 200 in expectation.

    Within 5 standard errors, which a right build misses with probability below 1e-6.
    """
    nonces = seeded(2)
    drawn = np.array([elect(range(10), nonces).leader for _ in range(200)])
    served = exposed(np.ones((200, 10), dtype=bool), drawn).served
    assert served.sum() == 200
    assert abs(served[:3].sum() - 60) < 5 * np.sqrt(200 * 0.3 * 0.7)
    # Never being served by a colluder has probability 0.7^200.
    assert binom.pmf(0, 200, 0.3) < 1e-30
