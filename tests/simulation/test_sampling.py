"""Poisson sampling."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.simulation.sampling import poisson_draw, sampling_rates

SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=8).map(np.array)


def everybody(sizes):
    return np.ones(len(sizes), dtype=bool)


@given(SIZES, st.floats(0.01, 1), st.integers(0, 9), st.data())
def test_draws_are_subsets_of_the_shards_of_those_present(sizes, rate, seed, data):
    rates = np.full(len(sizes), rate)
    present = np.array(data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))))
    draw = poisson_draw(sizes, rates, present, seed, round_=1, step=1)
    everyone = poisson_draw(sizes, rates, everybody(sizes), seed, round_=1, step=1)
    parts = np.split(draw.positions, np.cumsum(draw.counts)[:-1])
    for device, (own, end) in enumerate(zip(parts, np.cumsum(sizes), strict=True)):
        assert len(own) == len(set(own))
        assert ((own >= end - sizes[device]) & (own < end)).all()
        # Who else takes part changes nobody's minibatch.
        assert draw.counts[device] == (everyone.counts[device] if present[device] else 0)
    assert set(draw.positions) <= set(everyone.positions)


def test_whole_shards_need_no_draw():
    sizes = np.array([3, 5])
    draw = poisson_draw(sizes, sampling_rates(sizes, None), everybody(sizes), 0, 1, 1)
    assert draw.counts.tolist() == [3, 5]
    assert draw.positions.tolist() == list(range(8))


def test_rates():
    sizes = np.array([10, 40])
    assert sampling_rates(sizes, 20).tolist() == [1.0, 0.5]
    assert sampling_rates(sizes, None).tolist() == [1.0, 1.0]


def test_each_record_enters_at_its_rate_independently():
    """Seeded; each bound has a false-alarm rate below 1e-6 over seeds."""
    sizes, rates = np.array([200, 100]), np.array([0.1, 0.5])
    n = 2000
    counts = np.array(
        [poisson_draw(sizes, rates, everybody(sizes), 7, 1, k).counts for k in range(n)]
    )
    deviation = np.sqrt(sizes * rates * (1 - rates))
    assert (np.abs(counts.mean(0) - sizes * rates) < 5 * deviation / np.sqrt(n)).all()
    # A fixed-size sampler would have no variance, so the variance is the law's fingerprint.
    assert (np.abs(counts.var(0) / deviation**2 - 1) < 5 * np.sqrt(2 / n)).all()
    assert abs(np.corrcoef(counts.T)[0, 1]) < 5 / np.sqrt(n)


def test_draws_are_keyed_by_round_and_step():
    sizes, rates = np.array([50]), np.array([0.5])
    draws = [
        poisson_draw(sizes, rates, everybody(sizes), 0, t, k).positions.tobytes()
        for t, k in [(1, 1), (1, 2), (2, 1), (1, 1)]
    ]
    assert draws[0] == draws[3]
    assert len(set(draws)) == 3
