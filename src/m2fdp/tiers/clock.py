"""Simulated seconds of a round, from FLOPs, bytes, profiles and shard sizes (D eq. 5).

Weights and wall clocks are never read: all times of a run are known before it is trained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from m2fdp.core.streams import generator
from m2fdp.tiers.config import ClockConfig
from m2fdp.tiers.costs import TierCosts

GIGA = 1e9


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of every client in every tier, all (K, M) float64: T^c of its own part of the model,
    T^s of the server's part, T^com of its activations, labels and model, both ways."""

    client: np.ndarray
    server: np.ndarray
    communication: np.ndarray

    def parallel(self) -> np.ndarray:
        """T of D eq. 5: client and server compute at once, then the link is waited for; (K, M)."""
        return np.maximum(self.client, self.server) + self.communication

    def sequential(self) -> np.ndarray:
        """One after the other, as in SplitFed and FedAvg; (K, M)."""
        return self.client + self.server + self.communication

    def at(self, tiers: np.ndarray, shared: bool) -> RoundTimes:
        """Of the clients in their tiers (K,), 1 … M: (K, 1). A shared server trains their parts one
        after the other, so that each waits for all."""
        rows = np.arange(len(tiers))
        client, server, communication = (
            values[rows, tiers - 1][:, None]
            for values in (self.client, self.server, self.communication)
        )
        if shared:
            server = np.full_like(server, server.sum())
        return RoundTimes(client, server, communication)

    def noisy(self, factors: np.ndarray) -> RoundTimes:
        """With the clients' computing times multiplied by their factors (K,)."""
        return replace(self, client=self.client * factors[:, None])


@dataclass(frozen=True)
class Clients:
    """Who takes part in a round, each (K,): records that they hold, CPUs, and bytes a second."""

    records: np.ndarray
    cpus: np.ndarray
    rates: np.ndarray


def clients_of(config: ClockConfig, records: np.ndarray, profiles: np.ndarray) -> Clients:
    """Clients by their places (K,) in the list of profiles."""
    cpus, rates = np.array(config.profiles).T
    return Clients(records, cpus[profiles], bytes_per_second(rates[profiles], config.rate_unit))


def round_times(costs: TierCosts, clients: Clients, config: ClockConfig) -> RoundTimes:
    """Of one local epoch of every client in every tier, without noise."""
    records = clients.records[:, None]
    slow = slowness(clients.cpus)[:, None]
    sent = records * costs.record_bytes + 2 * costs.model_bytes
    return RoundTimes(
        records * costs.client_flops * slow / (config.cpu_gflops * GIGA),
        records * costs.server_flops / (config.server_gflops * GIGA),
        sent / clients.rates[:, None],
    )


# D's code slows a client of so many CPUs down by so much against its own GPU.
_CPUS = np.array([0.1, 0.2, 1.0, 2.0, 4.0])
_SLOW_DOWNS = np.array([250.0, 130.0, 34.0, 20.0, 16.0])
_BYTES = {"mebibyte": 2.0**20, "megabit": 1e6 / 8}


def slowness(cpus: np.ndarray) -> np.ndarray:
    """Seconds for what takes one second on one CPU, by numbers of CPUs; between those that were
    measured, on a straight line between their logarithms, and beyond them as one over the CPUs."""
    measured = np.clip(cpus, _CPUS[0], _CPUS[-1])
    relative = np.log(_SLOW_DOWNS / _SLOW_DOWNS[_CPUS == 1.0])
    return np.exp(np.interp(np.log(measured), np.log(_CPUS), relative)) * (measured / cpus)


def bytes_per_second(rates: np.ndarray, unit: Literal["mebibyte", "megabit"]) -> np.ndarray:
    """Of rates in MiB/s or Mbit/s."""
    return rates * _BYTES[unit]


def draw_profiles(config: ClockConfig, n_clients: int, rounds: int, seed: int) -> np.ndarray:
    """The profile, by its place in the list, of every client in every round.

    At the start each profile has its share of the clients, in their order; at every switch a
    share of the clients draws one anew, uniformly (D Sec. 4.1): (R, K) int64.
    """
    n_profiles = len(config.profiles)
    present = np.arange(n_clients) * n_profiles // n_clients
    n_switching = round(config.switch_share * n_clients)
    drawn = np.empty((rounds, n_clients), dtype=np.int64)
    for number in range(rounds):
        if number and config.switch_every is not None and number % config.switch_every == 0:
            draws = generator(seed, "profile", number)
            who = draws.choice(n_clients, n_switching, replace=False)
            present[who] = draws.integers(n_profiles, size=n_switching)
        drawn[number] = present
    return drawn


def draw_noise(deviation: float, n_clients: int, rounds: int, seed: int) -> np.ndarray:
    """What every client's computing time is multiplied with in every round: log-normal, (R, K)."""
    if not deviation:
        return np.ones((rounds, n_clients))
    keys = np.ndindex(rounds, n_clients)
    normal = [generator(seed, "clock-noise", *key).standard_normal() for key in keys]
    return np.exp(deviation * np.reshape(normal, (rounds, n_clients)))


def draw_present(n_clients: int, rounds: int, share: float, seed: int) -> np.ndarray:
    """Who takes part in every round: that share of the clients, one at least, drawn uniformly;
    bool (R, K)."""
    size = max(1, round(share * n_clients))
    present = np.zeros((rounds, n_clients), dtype=bool)
    for number in range(rounds):
        draws = generator(seed, "clock-participants", number)
        present[number, draws.choice(n_clients, size, replace=False)] = True
    return present
