"""Who takes part in a round (J eq. 27), and which records a device draws."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.core.engine.parts import make_shards, mechanism_for, plan_of, run_plan, schedule

from m2fdp.core.algorithms import build_plan
from m2fdp.core.config import Config, TopologyConfig, TrainingConfig, TrustConfig
from m2fdp.core.engine.minibatches import draw_participants, poisson_draw, sampling_rates
from m2fdp.core.streams import KeyedStreams
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.given.edges import tree_from_edges

RAGGED = [("c", "A"), ("c", "B"), ("A", "0"), ("A", "1"), ("A", "2"), ("B", "3")]


def test_each_server_has_its_number_and_every_device_its_share():
    """Seeded; the bound on the share has a false-alarm rate below 1e-5 over seeds."""
    tree = tree_from_edges(RAGGED)
    network = plan_of("hfl", tree, None, None, participants=2).network
    draws = np.array([draw_participants(network, KeyedStreams(0), t) for t in range(2000)])
    assert (draws[:, :3].sum(axis=1) == 2).all()
    assert draws[:, 3].all()
    assert np.abs(draws[:, :3].mean(axis=0) - 2 / 3).max() < 5 * np.sqrt(2 / 9 / 2000)
    assert network.weights[1].tolist() == [0.5, 0.5, 0.5, 1.0]


@pytest.mark.parametrize("name", ["hfl", "hfl_dp", "m2fdp"])
def test_all_devices_of_every_server_are_all_devices(softmax, name):
    tree = tree_from_edges(RAGGED)
    shards = make_shards([10, 12, 9, 7], rate=0.5)
    results = []
    for participants in (None, 3):
        plan = plan_of(name, tree, None, schedule(3, 2), participants=participants)
        results.append(run_plan(plan, mechanism_for(plan, shards), softmax, shards))
    assert torch.equal(*results)


def test_only_who_takes_part_moves_the_global_model(softmax):
    """One of four devices a round: the round is that device's alone."""
    tree = tree_from_fanouts([1, 4])
    shards = make_shards([10] * 4, dtype=torch.float64)
    plan = plan_of("hfl", tree, None, schedule(1, 3), participants=1)
    trained = run_plan(plan, mechanism_for(plan, shards), softmax, shards)
    (chosen,) = np.flatnonzero(draw_participants(plan.network, KeyedStreams(0), 1))
    alone = tree_from_fanouts([1, 1])
    part = slice(10 * chosen, 10 * chosen + 10)
    single = replace(
        shards,
        features=shards.features[part],
        labels=shards.labels[part],
        sizes=shards.sizes[:1],
        rates=shards.rates[:1],
    )
    other = plan_of("hfl", alone, None, schedule(1, 3))
    expected = run_plan(other, mechanism_for(other, single), softmax, single)
    torch.testing.assert_close(trained, expected)


def test_a_star_takes_as_many_devices_in_all():
    topology = TopologyConfig(fanouts=[3, 4], trust=TrustConfig(ratios=[0.5]))
    training = TrainingConfig(rounds=1, local_steps=1, learning_rate=1, participants=2)
    plans = {
        name: build_plan(Config(algorithm=name, topology=topology, training=training))
        for name in ("pedpfl", "m2fdp")
    }
    assert plans["m2fdp"].network.present.tolist() == [2, 2, 2]
    assert plans["pedpfl"].network.present.tolist() == [6]


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
