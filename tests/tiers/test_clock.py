"""Simulated seconds: D's start by hand, and the ratios that follow from D's two units."""

import numpy as np
import pytest
from tests.tiers.clocks import RECORDS, START, clock, start_clients, start_times

from m2fdp.tiers.clock import clients_of, fedavg_costs, resnet_costs, round_times, tier_costs
from m2fdp.tiers.config import TieringConfig
from m2fdp.tiers.ways import DTFL, FEDAVG, FEDGKT, SPLITFED

# Tiers of two clients of each of D's profiles.
AT_MEBIBYTES = np.array([7] * 6 + [1] * 4)
ONES = np.ones(10, dtype=np.int64)


def round_of(way, config, tiers=ONES):
    costs = way.costs(resnet_costs(config.depth, 16), config, TieringConfig(), 1)
    times = round_times(costs, start_clients(config), config)
    return way.seconds(times, tiers, config).max()


@pytest.mark.parametrize(
    ("model", "dtfl", "fedavg", "splitfed", "shared"),
    [
        ("resnet56", 38.6919, 128.498, 276.765, 61.0),
        ("resnet110", 45.5676, 246.893, 302.166, 88.5),
    ],
)
def test_ds_round_at_mebibytes_and_of_a_server_that_keeps_all_waiting(
    model, dtfl, fedavg, splitfed, shared
):
    config = clock(model=model)
    assert round_of(DTFL, config, AT_MEBIBYTES) == pytest.approx(dtfl, rel=1e-4)
    assert round_of(FEDAVG, config) == pytest.approx(fedavg, rel=1e-4)
    assert round_of(SPLITFED, config) == pytest.approx(splitfed, rel=1e-4)
    config = clock(model=model, server="shared")
    assert round_of(DTFL, config, AT_MEBIBYTES) == pytest.approx(shared, abs=0.05)


def test_a_clients_times_are_those_computed_by_hand():
    """The slowest client of D's start, 0.1 CPUs at 10 MiB/s, in tier 1 and in tier 7."""
    times = start_times(clock())
    slow = 250 / 34 / 150e9
    flops = np.array(
        [1_769_472, 81_788_928, 80_216_064, 99_090_432, 80_216_064, 99_090_432, 80_216_064, 15_360]
    )
    assert times.client[9, 0] == pytest.approx(5000 * (flops[0] + 960) * slow)
    assert times.client[9, 6] == pytest.approx(5000 * (flops[:7].sum() + 15_360) * slow)
    assert times.server[9, 0] == pytest.approx(5000 * flops[1:].sum() / 350e9)
    sent = 5000 * (65_536 + 8) + 2 * 4 * (464 + 32 + 170)
    assert times.communication[9, 0] == pytest.approx(sent / (10 * 2**20))
    total = times.parallel()[9, 0]
    assert total == max(times.client[9, 0], times.server[9, 0]) + times.communication[9, 0]


def test_megabits_are_slower_by_their_ratio():
    mebibytes, megabits = (
        start_times(clock(rate_unit=unit)).communication for unit in ("mebibyte", "megabit")
    )
    assert megabits / mebibytes == pytest.approx(np.full((10, 7), 8 * 2**20 / 1e6))


def test_clients_are_slow_by_the_measured_ratios():
    measured = start_times(clock()).client
    ratios = np.repeat([16, 20, 34, 130, 250], 2) / 34
    assert measured[:, 0] / measured[4, 0] == pytest.approx(ratios)


def test_noise_moves_the_clients_times_only():
    times = start_times(clock())
    factors = np.linspace(0.5, 2.0, 10)
    config, modules = clock(), resnet_costs(56, 16)
    noisy = round_times(tier_costs(modules, 7), start_clients(config), config, factors)
    assert noisy.client == pytest.approx(times.client * factors[:, None])
    assert (noisy.server == times.server).all()
    assert (noisy.communication == times.communication).all()


def test_splitfed_on_a_shared_server_waits_for_all():
    separate, shared = (round_of(SPLITFED, each) for each in (clock(), clock(server="shared")))
    part = 5000 * 438_844_416 / 350e9
    assert shared - separate == pytest.approx(9 * part)


@pytest.mark.parametrize("server", ["unlimited", "shared"])
def test_fedgkts_server_begins_when_the_slowest_has_sent_and_trains_on_all(server):
    """By hand, of ResNet-56; the small network is two bottlenecks of 64 places by 64 channels."""
    config = clock(server=server)
    modules = resnet_costs(56, 16)
    pixels, plain = 1024, 64 * 16 + 9 * 16 * 16 + 16 * 64
    first = 16 * 16 + 9 * 16 * 16 + 16 * 64 + 16 * 64  # with its projection
    small = 3 * 2 * (pixels * (plain + first) + 64 * 10)
    assert modules.small_flops == small
    a_record = 1_769_472 + small + 1_769_472 / 2 + small / 3
    client = 5000 * a_record * (250 / 34) / 150e9
    sending = 5000 * (65_536 + 8 + 2 * 40) / (10 * 2**20)
    serving = 50_000 * modules.flops[1:].sum() / 350e9
    assert round_of(FEDGKT, config) == pytest.approx(client + sending + serving)
    assert round_of(FEDGKT, config) == pytest.approx(124.310, rel=1e-4)


def test_seconds_grow_with_records_and_fall_with_the_link():
    config, costs = clock(), fedavg_costs(resnet_costs(20, 4))
    base, twice = (
        round_times(costs, clients_of(config, records, START), config).sequential()
        for records in (RECORDS, 2 * RECORDS)
    )
    assert (twice > base).all() and (twice < 2 * base).all()  # the model is sent once all the same
