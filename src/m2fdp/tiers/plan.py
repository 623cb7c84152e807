"""Who trains in which tier, round by round, and how long the rounds take: before any training."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.tiers import scheduler
from m2fdp.tiers.clock import (
    GIGA,
    Clients,
    clients_of,
    draw_noise,
    draw_present,
    draw_profiles,
    round_times,
)
from m2fdp.tiers.config import ClockConfig, TieringConfig
from m2fdp.tiers.costs import ModuleCosts, fedavg_costs, resnet_costs, tier_costs
from m2fdp.tiers.ways import DTFL, FEDAVG, FEDGKT, SPLITFED

ABSENT = -1
_MOST_CLIENT_ROUNDS = 200_000
BASELINES = (FEDAVG, SPLITFED, FEDGKT)


@dataclass(frozen=True)
class World:
    """What happens to the clients, whatever tiers they are in: their records (K,), places (R, K) in
    `clock.profiles`, factors (R, K) of computing times, and who takes part (R, K)."""

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
    is shared is billed, but not scheduled for: D's rule takes the server's time as given. The model
    that is billed is the clock's own, unless `costs` are of another.
    """
    if costs is None:
        costs = resnet_costs(clock.depth, clock.width)
    tiers_cost = tier_costs(costs, tiering.tiers, clock.label_bytes, tiering.whole_model)
    rounds, n_clients = world.profiles.shape
    tiers = np.full((rounds, n_clients), ABSENT, dtype=np.int64)
    seconds, oracle = np.empty(rounds), np.empty(rounds)
    baselines = {way.name: np.empty(rounds) for way in BASELINES}
    state = scheduler.no_observations(n_clients, tiers_cost.n_tiers)
    profile = scheduler.tier_profile(tiering, tiers_cost, clock.server_gflops * GIGA)
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
            estimates = scheduler.estimate(state, tiering, profile, tiers_cost, world.records)
            chosen = scheduler.assign(estimates, tiering.initial_tier)[present]
        tiers[number, present] = chosen
        seen, rates = np.zeros(n_clients), np.zeros(n_clients)
        seen[present] = times.client[np.arange(len(chosen)), chosen - 1]
        rates[present] = clients.rates
        state = scheduler.observe(state, tiering, tiers[number], seen, rates)
        seconds[number] = DTFL.seconds(times, chosen, clock).max()
        oracle[number] = DTFL.seconds(times, best, clock).max()
        for way, took in baseline_seconds(costs, clock, clients, factors).items():
            baselines[way][number] = took
    return TierPlan(tiers, seconds, oracle, baselines)


def baseline_seconds(
    modules: ModuleCosts, clock: ClockConfig, clients: Clients, factors: np.ndarray
) -> dict[str, float]:
    """Of a round of an epoch of each of `BASELINES`, by name, by these clients, whose computing
    times are multiplied with factors (K,)."""
    seconds, ones = {}, np.ones(len(factors), dtype=np.int64)
    for way in BASELINES:
        costs = way.costs(modules, clock, TieringConfig(), 1)
        times = round_times(costs, clients, clock).noisy(factors)
        seconds[way.name] = float(way.seconds(times, ones, clock).max())
    return seconds


UNITS = ("mebibyte", "megabit")


def times_table(config: Config, n_clients: int) -> pd.DataFrame:
    """Seconds of a round of each profile in each tier, in both units, without noise, of
    K clients who hold equally many records.

    Returns:
        One row a unit, profile and tier; FedAvg's row has its place after them, as tier 0.
    """
    tiering, clock = config.tiering, config.clock
    costs, rows = resnet_costs(clock.depth, clock.width), []
    tiers = tier_costs(costs, tiering.tiers, clock.label_bytes, tiering.whole_model)
    n_profiles = len(clock.profiles)
    for unit in UNITS:
        in_unit = clock.model_copy(update={"rate_unit": unit})
        records = np.full(n_profiles, clock.records / n_clients)
        clients = clients_of(in_unit, records, np.arange(n_profiles))
        split, whole = (
            round_times(each, clients, in_unit) for each in (tiers, fedavg_costs(costs))
        )
        for client, (cpus, rate) in enumerate(clock.profiles):
            for tier in (*range(1, tiers.n_tiers + 1), 0):
                times, at = (split, (client, tier - 1)) if tier else (whole, (client, 0))
                rows.append(
                    {
                        "model": clock.model,
                        "rate_unit": unit,
                        "cpus": cpus,
                        "rate": rate,
                        "tier": tier,
                        "client_s": times.client[at],
                        "server_s": times.server[at],
                        "communication_s": times.communication[at],
                        "round_s": times.parallel()[at],
                    }
                )
    return pd.DataFrame(rows)


def rounds_table(plan: TierPlan, config: Config) -> pd.DataFrame:
    """The configured plan, one row a round: its seconds, the baselines', and clients by tier."""
    tiering, numbers = config.tiering, np.arange(1, len(plan.seconds) + 1)
    table = pd.DataFrame({"round": numbers, "model": config.clock.model, **plan.by_way})
    for tier in range(1, tiering.tiers + tiering.whole_model + 1):
        table[f"tier_{tier}"] = (plan.tiers == tier).sum(axis=1)
    return table
