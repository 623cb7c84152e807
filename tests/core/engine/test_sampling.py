"""Poisson sampling."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.core.engine.sampling import poisson_draw, sampling_rates
from m2fdp.core.streams import KeyedStreams


@given(st.lists(st.sampled_from([0.0, 0.3, 0.9, 1.0]), min_size=1, max_size=60), st.integers(0, 9))
def test_a_draw_is_a_set_of_records_that_may_enter(rates, seed):
    rates = np.array(rates)
    drawn = poisson_draw(rates, KeyedStreams(seed), 1, 1)
    assert (np.diff(drawn) > 0).all()
    assert (rates[drawn] > 0).all()
    assert set(np.flatnonzero(rates == 1)) <= set(drawn)
    # Records that can't enter change nobody's chance.
    fewer = np.where(np.arange(len(rates)) % 2 == 0, rates, 0.0)
    if ((rates > 0) & (rates < 1)).any() and ((fewer > 0) & (fewer < 1)).any():
        assert set(poisson_draw(fewer, KeyedStreams(seed), 1, 1)) == {
            i for i in drawn if i % 2 == 0
        }


def test_rates():
    sizes = np.array([10, 40])
    assert sampling_rates(sizes, 20).tolist() == [1.0, 0.5]
    assert sampling_rates(sizes, None).tolist() == [1.0, 1.0]


def test_each_record_enters_at_its_rate_independently():
    """Seeded; each bound has a false-alarm rate below 1e-6 over seeds."""
    sizes, rates = np.array([200, 100]), np.array([0.1, 0.5])
    of_records = np.repeat(rates, sizes)
    n = 2000
    drawn = [poisson_draw(of_records, KeyedStreams(7), 1, k) for k in range(n)]
    counts = np.array([[(d < 200).sum(), (d >= 200).sum()] for d in drawn])
    deviation = np.sqrt(sizes * rates * (1 - rates))
    assert (np.abs(counts.mean(0) - sizes * rates) < 5 * deviation / np.sqrt(n)).all()
    # A fixed-size sampler would have no variance, so the variance is the law's fingerprint.
    assert (np.abs(counts.var(0) / deviation**2 - 1) < 5 * np.sqrt(2 / n)).all()
    assert abs(np.corrcoef(counts.T)[0, 1]) < 5 / np.sqrt(n)


def test_draws_are_keyed_by_round_and_step():
    rates = np.full(50, 0.5)
    draws = [
        poisson_draw(rates, KeyedStreams(0), t, k).tobytes()
        for t, k in [(1, 1), (1, 2), (2, 1), (1, 1)]
    ]
    assert draws[0] == draws[3]
    assert len(set(draws)) == 3
