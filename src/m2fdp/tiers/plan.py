"""Who trains in which tier, round by round, and how long the rounds take: before any training."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.streams import generator
from m2fdp.tiers.clock import (
    ModuleCosts,
    RoundTimes,
    TierCosts,
    clients_of,
    costs_of_cuts,
    draw_noise,
    draw_profiles,
    resnet_costs,
    round_times,
    tier_costs,
)
from m2fdp.tiers.config import ClockConfig, TieringConfig
from m2fdp.tiers.scheduler import Scheduled, schedule
from m2fdp.tiers.ways import DTFL, FEDAVG, FEDGKT, SPLITFED, Way

_MOST_CLIENT_ROUNDS = 200_000
BASELINES = (FEDAVG, SPLITFED, FEDGKT)
UNITS = ("mebibyte", "megabit")
# Of ways without tiers.
_ONE_TIER = TieringConfig(schedule="oracle")


@dataclass(frozen=True)
class World:
    """The clients, whatever tiers they are in: their numbers of records (K,), and of each round
    (R, K): their profile's place, their factor of computing times, whether they take part."""

    records: np.ndarray
    profiles: np.ndarray
    noise: np.ndarray
    present: np.ndarray

    def rounds(self, costs: TierCosts, clock: ClockConfig) -> Iterator[Scheduled]:
        """What `schedule` is told of each round, in tiers of these costs."""
        for places, noise, present in zip(self.profiles, self.noise, self.present, strict=True):
            clients = clients_of(clock, self.records, places)
            yield costs, clients, round_times(costs, clients, clock, noise), present


@dataclass(frozen=True)
class TierPlan:
    """Tiers (R, K), 1 … M, -1 = absent; and what each round takes, (R,): by these tiers, had its
    times been known before (`oracle`), and by each of `BASELINES` the same clients."""

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
    """Profiles, noise and who takes part, all keyed by the seed; equally many records each. A
    `share` of the clients, drawn uniformly, takes part in a round; one at least.

    Raises:
        InputError: it would take too long to plan.
    """
    if (product := rounds * clients) > _MOST_CLIENT_ROUNDS:
        remedy = f"times {clients:,} devices is {product:,}; valid: {_MOST_CLIENT_ROUNDS:,} at most"
        raise InputError("training.rounds", rounds, remedy)
    present = np.full((rounds, clients), share >= 1.0)
    for number in range(rounds) if share < 1.0 else ():
        draws = generator(seed, "clock-participants", number)
        present[number, draws.choice(clients, max(1, round(share * clients)), replace=False)] = True
    return world_of(config, seed, np.full(clients, config.records / clients), present)


def world_of(config: ClockConfig, seed: int, records: np.ndarray, present: np.ndarray) -> World:
    """Profiles and noise of clients with so many records (K,), who take part (R, K)."""
    rounds, clients = present.shape
    profiles = draw_profiles(config, clients, rounds, seed)
    return World(records, profiles, draw_noise(config.noise, clients, rounds, seed), present)


def plan_tiers(tiering: TieringConfig, clock: ClockConfig, world: World) -> TierPlan:
    """The tiers of a run and the seconds of its rounds. A server that is shared is billed, but not
    scheduled for: D's rule takes the server's time as given."""
    modules = resnet_costs(clock.depth, clock.width)
    rounds = list(timed(DTFL, tiering, clock, modules, world))
    return TierPlan(
        np.array([tiers for tiers, _, _ in rounds]),
        np.array([took.max() for _, _, took in rounds]),
        seconds_of(DTFL, oracle_of(tiering), clock, modules, world),
        {way.name: seconds_of(way, tiering, clock, modules, world) for way in BASELINES},
    )


def timed(
    way: Way,
    tiering: TieringConfig,
    clock: ClockConfig,
    modules: ModuleCosts,
    world: World,
    epochs: int = 1,
) -> Iterator[tuple[np.ndarray, RoundTimes, np.ndarray]]:
    """Rounds of a way: the clients' tiers (K,), -1 = absent; all times; and what the round takes
    each client that takes part, (n,)."""
    costs = way.costs(modules, clock, tiering, epochs)
    tiering = tiering if way.tiered else _ONE_TIER
    start = np.full(len(world.records), tiering.static_tier or tiering.initial_tier)
    allowed = np.ones((len(start), costs.n_tiers), dtype=bool)
    for tiers, times in schedule(tiering, clock, start, allowed, world.rounds(costs, clock)):
        yield tiers, times, way.seconds(times, tiers, clock)


def seconds_of(
    way: Way, tiering: TieringConfig, clock: ClockConfig, modules: ModuleCosts, world: World
) -> np.ndarray:
    """Seconds (R,) of the rounds of an epoch."""
    return np.array([took.max() for _, _, took in timed(way, tiering, clock, modules, world)])


def oracle_of(tiering: TieringConfig) -> TieringConfig:
    """The same tiers, by the round's own times."""
    return tiering.model_copy(update={"schedule": "oracle", "static_tier": None})


def times_table(config: Config, n_clients: int) -> pd.DataFrame:
    """Seconds of a round of each profile in each tier, in both units, without noise, of K clients
    who hold equally many records: a row each. FedAvg's stands after the tiers', as tier 0."""
    tiering, clock = config.tiering, config.clock
    costs, units = resnet_costs(clock.depth, clock.width), []
    cuts = tier_costs(costs, tiering.tiers, tiering.whole_model).modules
    tiers = costs_of_cuts(costs, np.append(cuts, len(costs.flops)))
    (cpus, rates), profiles = np.array(clock.profiles).T, np.arange(len(clock.profiles))
    for unit in UNITS:
        in_unit = clock.model_copy(update={"rate_unit": unit})
        clients = clients_of(in_unit, np.full(len(profiles), clock.records / n_clients), profiles)
        times = round_times(tiers, clients, in_unit)
        of_unit = {
            "model": clock.model,
            "rate_unit": unit,
            "cpus": np.repeat(cpus, tiers.n_tiers),
            "rate": np.repeat(rates, tiers.n_tiers),
            "tier": np.tile([*range(1, tiers.n_tiers), 0], len(profiles)),
            "client_s": times.client.ravel(),
            "server_s": times.server.ravel(),
            "communication_s": times.communication.ravel(),
            "round_s": times.parallel().ravel(),
        }
        units.append(pd.DataFrame(of_unit))
    return pd.concat(units, ignore_index=True)


def rounds_table(plan: TierPlan, config: Config) -> pd.DataFrame:
    """The configured plan, one row a round: its seconds, the baselines', and clients by tier."""
    tiering, numbers = config.tiering, np.arange(1, len(plan.seconds) + 1)
    table = pd.DataFrame({"round": numbers, "model": config.clock.model, **plan.by_way})
    for tier in range(1, tiering.tiers + tiering.whole_model + 1):
        table[f"tier_{tier}"] = (plan.tiers == tier).sum(axis=1)
    return table
