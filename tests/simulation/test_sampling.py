"""Poisson sampling."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.simulation.sampling import poisson_draw, sampling_rates

SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=8).map(np.array)


@given(SIZES, st.floats(0.01, 1), st.integers(0, 9))
def test_draws_are_padded_subsets_of_each_shard(sizes, rate, seed):
    rates = np.full(len(sizes), rate)
    draw = poisson_draw(sizes, rates, seed, round_=1, step=1)
    ends = np.cumsum(sizes)
    assert draw.positions.shape == draw.mask.shape
    assert draw.mask.shape[1] % 8 == 0
    for device, end in enumerate(ends):
        own = draw.positions[device][draw.mask[device]]
        assert len(own) == draw.counts[device] == len(set(own))
        assert ((own >= end - sizes[device]) & (own < end)).all()


def test_whole_shards_need_no_draw():
    sizes = np.array([3, 5])
    draw = poisson_draw(sizes, sampling_rates(sizes, None), 0, 1, 1)
    assert draw.counts.tolist() == [3, 5]
    assert draw.positions[1][:5].tolist() == [3, 4, 5, 6, 7]


def test_rates():
    sizes = np.array([10, 40])
    assert sampling_rates(sizes, 20).tolist() == [1.0, 0.5]
    assert sampling_rates(sizes, None).tolist() == [1.0, 1.0]


def test_each_record_enters_at_its_rate_independently():
    """Seeded; each bound has a false-alarm rate below 1e-6 over seeds."""
    sizes, rates = np.array([200, 100]), np.array([0.1, 0.5])
    n = 2000
    counts = np.array([poisson_draw(sizes, rates, 7, 1, k).counts for k in range(n)])
    deviation = np.sqrt(sizes * rates * (1 - rates))
    assert (np.abs(counts.mean(0) - sizes * rates) < 5 * deviation / np.sqrt(n)).all()
    # A fixed-size sampler would have no variance, so the variance is the law's fingerprint.
    assert (np.abs(counts.var(0) / deviation**2 - 1) < 5 * np.sqrt(2 / n)).all()
    assert abs(np.corrcoef(counts.T)[0, 1]) < 5 / np.sqrt(n)


def test_draws_are_keyed_by_round_and_step():
    sizes, rates = np.array([50]), np.array([0.5])
    draws = [
        poisson_draw(sizes, rates, 0, t, k).positions.tobytes()
        for t, k in [(1, 1), (1, 2), (2, 1), (1, 1)]
    ]
    assert draws[0] == draws[3]
    assert len(set(draws)) == 3
