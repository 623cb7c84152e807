"""Simulated seconds of a round, from FLOPs, bytes, profiles and shard sizes (D eq. 5).

Weights and wall clocks are never read: all times of a run are known before it is trained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from m2fdp.tiers.config import ClockConfig
from m2fdp.tiers.costs import TierCosts
from m2fdp.tiers.profiles import bytes_per_second, slowness

GIGA = 1e9


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of every client in every tier, all (K, M) float64.

    Attributes:
        client: T^c, of its own part of the model.
        server: T^s, of the server's part for this client.
        communication: T^com, of its activations, labels and model, both ways.
    """

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
        """Of the clients in their tiers, (K, 1).

        Args:
            tiers: (K,), 1 … M.
            shared: whether the server trains their parts one after the other, so that each
                waits for all.
        """
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
    """Who takes part in a round.

    Attributes:
        records: (K,) that they hold.
        cpus: (K,).
        rates: (K,) bytes a second.
    """

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
