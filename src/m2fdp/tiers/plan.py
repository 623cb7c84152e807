"""Who trains in which tier, round by round, and how long the rounds take: before any training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from m2fdp.core.errors import InputError
from m2fdp.tiers import scheduler
from m2fdp.tiers.clock import GIGA, Clients, RoundTimes, clients_of, round_times
from m2fdp.tiers.config import ClockConfig, TieringConfig
from m2fdp.tiers.costs import ModuleCosts, TierCosts, tier_costs
from m2fdp.tiers.module_costs import resnet_costs
from m2fdp.tiers.profiles import draw_noise, draw_present, draw_profiles
from m2fdp.tiers.ways import DTFL, FEDAVG, FEDGKT, SPLITFED

ABSENT = -1
_MOST_CLIENT_ROUNDS = 200_000
BASELINES = (FEDAVG, SPLITFED, FEDGKT)


@dataclass(frozen=True)
class World:
    """What happens to the clients, whatever tiers they are in.

    Attributes:
        records: (K,).
        profiles: (R, K) places in `clock.profiles`.
        noise: (R, K) factors of the clients' computing times.
        present: (R, K) who takes part.
    """

    records: np.ndarray
    profiles: np.ndarray
    noise: np.ndarray
    present: np.ndarray


@dataclass(frozen=True)
class TierPlan:
    """All (R,) or (R, K).

    Attributes:
        tiers: 1 … M; -1 = absent.
        seconds: what the round takes.
        oracle: what it would take, had its times been known before.
        baselines: what a round of each of `BASELINES` takes the same clients, by name.
    """

    tiers: np.ndarray
    seconds: np.ndarray
    oracle: np.ndarray
    baselines: Mapping[str, np.ndarray]

    @property
    def by_way(self) -> dict[str, np.ndarray]:
        """Seconds of the rounds, by the columns of tables."""
        ways = {"dtfl": self.seconds, "oracle": self.oracle, **self.baselines}
        return {f"{way}_s": seconds for way, seconds in ways.items()}


def draw_world(
    config: ClockConfig, seed: int, rounds: int, clients: int, share: float = 1.0
) -> World:
    """Profiles, noise and who takes part, all keyed by the seed; equally many records each.

    Args:
        rounds: R.
        clients: K.
        share: part of the clients that takes part in a round, drawn uniformly; one at least.

    Raises:
        InputError: it would take too long to plan.
    """
    if (product := rounds * clients) > _MOST_CLIENT_ROUNDS:
        remedy = f"times {clients:,} devices is {product:,}; valid: {_MOST_CLIENT_ROUNDS:,} at most"
        raise InputError("training.rounds", rounds, remedy)
    present = np.ones((rounds, clients), dtype=bool)
    if share < 1.0:
        present = draw_present(clients, rounds, share, seed)
    return World(
        np.full(clients, config.records / clients),
        draw_profiles(config, clients, rounds, seed),
        draw_noise(config.noise, clients, rounds, seed),
        present,
    )


def plan_tiers(
    tiering: TieringConfig, clock: ClockConfig, world: World, costs: ModuleCosts | None = None
) -> TierPlan:
    """The tiers of a run and the seconds of its rounds.

    The scheduler sees what a server would: times and rates of rounds that are over. A server that
    is shared is billed, but not scheduled for: D's rule takes the server's time as given.

    Args:
        costs: modules of the model that is billed, if it is not the clock's own.
    """
    if costs is None:
        costs = resnet_costs(clock.depth, clock.width)
    tiers_cost = tier_costs(costs, tiering.tiers, clock.label_bytes, tiering.whole_model)
    rounds, n_clients = world.profiles.shape
    tiers = np.full((rounds, n_clients), ABSENT, dtype=np.int64)
    seconds, oracle = np.empty(rounds), np.empty(rounds)
    baselines = {way.name: np.empty(rounds) for way in BASELINES}
    state = scheduler.no_observations(n_clients, tiers_cost.n_tiers)
    for number in range(rounds):
        present = world.present[number]
        clients = clients_of(clock, world.records[present], world.profiles[number, present])
        factors = world.noise[number, present]
        times = round_times(tiers_cost, clients, clock).noisy(factors)
        best = scheduler.assign(times.parallel(), tiering.initial_tier)
        if tiering.schedule == "oracle":
            chosen = best
        elif tiering.static_tier is not None:
            chosen = np.full(len(best), tiering.static_tier)
        else:
            chosen = _by_observation(state, tiering, clock, tiers_cost, world.records)[present]
        tiers[number, present] = chosen
        state = _observed(state, tiering, tiers[number], times, clients)
        seconds[number] = DTFL.seconds(times, chosen, clock).max()
        oracle[number] = DTFL.seconds(times, best, clock).max()
        for way, took in baseline_seconds(costs, clock, clients, factors).items():
            baselines[way][number] = took
    return TierPlan(tiers, seconds, oracle, baselines)


def baseline_seconds(
    modules: ModuleCosts, clock: ClockConfig, clients: Clients, factors: np.ndarray
) -> dict[str, float]:
    """Of a round of an epoch of each of `BASELINES`, by name, by these clients.

    Args:
        factors: what the clients' computing times are multiplied with, (K,).
    """
    seconds, ones = {}, np.ones(len(factors), dtype=np.int64)
    for way in BASELINES:
        costs = way.costs(modules, clock, TieringConfig(), 1)
        times = round_times(costs, clients, clock).noisy(factors)
        seconds[way.name] = float(way.seconds(times, ones, clock).max())
    return seconds


def _by_observation(
    state: scheduler.SchedulerState,
    tiering: TieringConfig,
    clock: ClockConfig,
    costs: TierCosts,
    records: np.ndarray,
) -> np.ndarray:
    profile = scheduler.tier_profile(tiering, costs, clock.server_gflops * GIGA)
    estimates = scheduler.estimate(state, tiering, profile, costs, records)
    return scheduler.assign(estimates, tiering.initial_tier)


def _observed(
    state: scheduler.SchedulerState,
    tiering: TieringConfig,
    tiers: np.ndarray,
    times: RoundTimes,
    clients: Clients,
) -> scheduler.SchedulerState:
    """The state after the round; times and clients are those of the present ones."""
    present = np.flatnonzero(tiers > 0)
    seconds, rates = np.zeros(len(tiers)), np.zeros(len(tiers))
    seconds[present] = times.client[np.arange(len(present)), tiers[present] - 1]
    rates[present] = clients.rates
    return scheduler.observe(state, tiering, tiers, seconds, rates)
