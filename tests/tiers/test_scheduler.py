"""D's Algorithm 1 against brute force, by hand, and in what must hold for any clients."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.tiers.clocks import RECORDS, START, clock, start_clients, start_times

from m2fdp.tiers import scheduler
from m2fdp.tiers.clock import (
    Clients,
    clients_of,
    fedavg_costs,
    resnet_costs,
    round_times,
    tier_costs,
)
from m2fdp.tiers.config import TieringConfig
from m2fdp.tiers.ways import DTFL

COSTS = tier_costs(resnet_costs(56, 16), 7)
SERVER = 350e9


def slowest(estimates, tiers):
    return max(estimates[k, m - 1] for k, m in enumerate(tiers))


def test_greedy_is_brute_force():
    """300 random clients of 4 x 5 times; small whole numbers, so that ties are common."""
    draws = np.random.default_rng(0)
    for number in range(300):
        whole = number % 2
        times = draws.integers(1, 6, (4, 5)).astype(float) if whole else draws.random((4, 5))
        found = scheduler.assign(times, 1)
        every = product(range(1, 6), repeat=4)
        best = min(slowest(times, tiers) for tiers in every)
        assert slowest(times, found) == best == scheduler.straggler_seconds(times)
        for k, tier in enumerate(found):  # nobody could keep more of the model
            assert (times[k, tier:] > best).all()


times = arrays(
    float,
    st.tuples(st.integers(1, 6), st.integers(1, 8)),
    elements=st.floats(0.01, 1e4, allow_nan=False),
)


@given(estimates=times)
def test_nobody_is_slower_than_the_stragglers_best(estimates):
    tiers = scheduler.assign(estimates, 1)
    assert slowest(estimates, tiers) <= scheduler.straggler_seconds(estimates) * (1 + 1e-12)


@given(estimates=times, factor=st.floats(0.01, 100))
def test_tiers_do_not_depend_on_the_unit_of_time(estimates, factor):
    rounded = np.round(estimates, 3) + 0.001
    assert (scheduler.assign(rounded, 1) == scheduler.assign(rounded * factor, 1)).all()


def test_ties_up_to_rounding_go_to_the_higher_tier():
    estimates = np.array([[1.0, 1.0 + 1e-15, 3.0], [9.0, 1.0, 1.0 + 1e-6]])
    assert scheduler.assign(estimates, 1).tolist() == [2, 2]


def test_clients_never_seen_start_and_do_not_decide():
    estimates = np.array([[np.nan] * 3, [2.0, 1.0, 4.0]])
    assert scheduler.assign(estimates, 3).tolist() == [3, 2]
    assert scheduler.assign(np.full((2, 3), np.nan), 2).tolist() == [2, 2]


@pytest.mark.parametrize("model", ["resnet56", "resnet110"])
@pytest.mark.parametrize(
    ("unit", "whole_model", "expected"),
    [("mebibyte", False, [7] * 6 + [1] * 4), ("megabit", True, [8] * 10)],
)
def test_tiers_of_ds_start(unit, model, whole_model, expected):
    times = start_times(clock(rate_unit=unit, model=model), whole_model=whole_model)
    assert scheduler.assign(times.parallel(), 1).tolist() == expected


@pytest.mark.parametrize(("model", "ratio"), [("resnet56", 2.04), ("resnet110", 1.09)])
def test_at_megabits_ds_round_is_slower_than_fedavgs_unless_clients_may_keep_the_model(
    model, ratio
):
    config = clock(rate_unit="megabit", model=model)
    costs = fedavg_costs(resnet_costs(config.depth, config.width))
    fedavg = round_times(costs, start_clients(config), config).sequential().max()
    tiers, both = (start_times(config, whole_model=whole) for whole in (False, True))
    seconds = DTFL.seconds(tiers, scheduler.assign(tiers.parallel(), 1), config).max()
    assert seconds / fedavg == pytest.approx(ratio, abs=0.01)
    assert DTFL.seconds(both, scheduler.assign(both.parallel(), 1), config).max() == fedavg


def random_clients(draws, ordered):
    """Up to 12 clients; ordered: whoever computes slower has the slower link, too."""
    n = int(draws.integers(1, 13))
    cpus, rates = np.exp(draws.uniform(np.log(0.1), np.log(4), n)), draws.uniform(1e5, 2e8, n)
    if ordered:
        cpus, rates = np.sort(cpus), np.sort(rates)
    records = np.full(n, 5000.0) if ordered else draws.integers(1, 9000, n).astype(float)
    return Clients(records, cpus, rates)


def test_more_tiers_never_slow_the_straggler():
    """Tiers are nested (D Table 11); 200 random sets of clients."""
    draws, modules, config = np.random.default_rng(1), resnet_costs(56, 16), clock()
    for _ in range(200):
        clients = random_clients(draws, ordered=False)
        costs = (tier_costs(modules, m) for m in range(1, 8))
        totals = [round_times(each, clients, config).parallel() for each in costs]
        seconds = [scheduler.straggler_seconds(each) for each in totals]
        assert (np.diff(seconds) <= 0).all()


def of_table_7(draws):
    """D Table 7's unequal shards, dealt to D's profiles."""
    sizes = np.array([5177, 4876, 4249, 5050, 6110, 5548, 4919, 4088, 4741, 5242.0])
    return clients_of(clock(), sizes, draws.permutation(START))


@pytest.mark.parametrize(
    ("clients_by", "seed"), [(partial(random_clients, ordered=True), 2), (of_table_7, 3)]
)
@pytest.mark.parametrize("unit", ["mebibyte", "megabit"])
def test_one_tier_for_all_is_as_fast(clients_by, seed, unit):
    """The straggler is slowest in every tier; its best one, given to all, attains T_max."""
    draws, config = np.random.default_rng(seed), clock(rate_unit=unit)
    for _ in range(200):
        totals = round_times(COSTS, clients_by(draws), config).parallel()
        assert totals.max(axis=0).min() == scheduler.straggler_seconds(totals)


@pytest.mark.parametrize(("model", "slower"), [("resnet56", 3.92), ("resnet110", 7.63)])
def test_links_so_much_slower_than_mebibytes_make_dtfls_round_fedavgs(model, slower):
    config = clock(model=model)
    costs = resnet_costs(config.depth, config.width)
    start = start_clients(config)
    clients = Clients(start.records, start.cpus, start.rates / slower)
    fedavg = round_times(fedavg_costs(costs), clients, config).sequential().max()
    dtfl = round_times(tier_costs(costs, 7), clients, config).parallel()
    assert scheduler.straggler_seconds(dtfl) == pytest.approx(fedavg, rel=2e-3)


def test_where_profiles_are_crossed_choice_pays():
    """A fast computer on a slow link, and the other way round."""
    costs = tier_costs(resnet_costs(56, 16), 7, whole_model=True)
    clients = Clients(np.full(2, 5000.0), np.array([4.0, 0.1]), np.array([1e6, 1e8]))
    totals = round_times(costs, clients, clock()).parallel()
    assert scheduler.assign(totals, 1).tolist() == [8, 1]
    assert totals.max(axis=0).min() > 2 * scheduler.straggler_seconds(totals)


def state_after(*rounds, n_tiers=7):
    """One client's state after (tier, seconds) at 10 MiB/s."""
    state, rates = scheduler.no_observations(1, n_tiers), np.array([10 * 2.0**20])
    for tier, seconds in rounds:
        state = scheduler.observe(state, np.array([tier]), np.array([seconds]), rates)
    return state


def test_the_newest_counts_two_thirds_tier_by_tier(monkeypatch):
    monkeypatch.setattr(TieringConfig, "ema", 0.75)
    state = state_after((2, 8.0), (3, 5.0), (2, 4.0))
    assert state.means[0, 1] == 0.75 * 4.0 + 0.25 * 8.0
    assert state.means[0, 2] == 5.0
    assert np.isnan(np.delete(state.means[0], [1, 2])).all()
    assert state.tiers.tolist() == [2]


def test_nothing_is_learnt_of_who_is_absent():
    before = state_after((2, 8.0))
    after = scheduler.observe(before, np.array([-1]), np.array([]), np.array([0.0]))
    for name in ("means", "rates", "tiers"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))


def test_an_estimate_is_the_profiles_ratio_times_the_mean():
    config, records = TieringConfig(), np.array([1000.0])
    profile = scheduler.tier_profile(config, COSTS, SERVER)
    state = state_after((2, 60.0))
    estimated = scheduler.estimate(state, profile, COSTS, records)[0]
    for m in range(7):
        client = 60.0 * COSTS.client_flops[m] / COSTS.client_flops[1]
        server = 1000 * COSTS.server_flops[m] / SERVER
        sent = 1000 * COSTS.record_bytes[m] + 2 * COSTS.model_bytes[m]
        assert estimated[m] == pytest.approx(max(client, server) + sent / (10 * 2**20))


def test_without_noise_the_right_profile_estimates_what_happens():
    config = clock()
    truth, clients = start_times(config), start_clients(config)
    tiers = np.array([1, 2, 3, 4, 5, 6, 7, 1, 4, 7])
    seconds = truth.client[np.arange(10), tiers - 1]
    state = scheduler.observe(scheduler.no_observations(10, 7), tiers, seconds, clients.rates)
    profile = scheduler.tier_profile(TieringConfig(), COSTS, SERVER)
    estimated = scheduler.estimate(state, profile, COSTS, RECORDS)
    np.testing.assert_allclose(estimated, truth.parallel(), rtol=1e-12)


def test_ds_profile_is_table_2():
    config = TieringConfig(profile="paper", tiers=6)
    costs = tier_costs(resnet_costs(56, 16), 6)
    client, server = scheduler.tier_profile(config, costs, SERVER)
    assert client.tolist() == [1.00, 1.63, 2.16, 2.68, 3.30, 3.81]
    assert server / server[0] == pytest.approx([1.00, 0.82, 0.65, 0.51, 0.33, 0.20])
    assert server[0] == costs.server_flops[0] / SERVER
    seven = scheduler.tier_profile(TieringConfig(profile="paper"), COSTS, SERVER)
    assert seven[0][1:].tolist() == client.tolist()
    assert seven[1][1:] == pytest.approx(server)
