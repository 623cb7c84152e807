"""What a promise rests on, as one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network, heads_of


@dataclass(frozen=True)
class Traffic:
    """How models travel in a run, whoever's they are.

    Attributes:
        layers: up to which they travel at some time; 0 among them.
        every_step: whether they travel after every local step.
        untrusted_servers: whether there are any between devices and cloud; they hand every
            broadcast on.
        cloud_is_trusted: whether the cloud is no adversary.
        colluding: how many of those whose noise protects a record tell what they drew.
        elected: whether the lowest servers are devices of their own.
        hidden: whether the lowest servers get only words of what devices send, for the cloud.
    """

    layers: frozenset[int]
    every_step: bool
    untrusted_servers: bool
    cloud_is_trusted: bool
    colluding: int
    elected: bool
    hidden: bool

    def last_release(self, head_layer: int) -> int:
        """The lowest layer that any aggregation with a release of a head of a layer ends at."""
        bound = max(head_layer, 1)  # a global aggregation releases what the cloud noises
        return max(x for x in self.layers if x < bound)


@dataclass(frozen=True, eq=False)
class Premises:
    """What a promise rests on; what follows from it alone is computed once.

    Attributes:
        sizes: int64 (N_L,), D_j.
        rates: float64 (N_L,), q_j.
        plans: the rounds t = 1…T, each with the number of its network.
    """

    network: Network
    sizes: np.ndarray
    rates: np.ndarray
    plans: Sequence[RoundPlan]
    privacy: PrivacyConfig
    threat: ThreatConfig

    @cached_property
    def heads(self) -> np.ndarray:
        """int64 (N_L, 2), see `m2fdp.core.topology.network.heads_of`."""
        return heads_of(self.network)

    @cached_property
    def head_layers(self) -> np.ndarray:
        """int64 (N_L,), the layer of every device's head."""
        return self.heads[:, 0]

    @cached_property
    def weights_to_heads(self) -> np.ndarray:
        """float64 (N_L,), the product of rho on the path from each device to its head."""
        return weights_up_to(self.network, self.head_layers)

    @cached_property
    def traffic(self) -> Traffic:
        """How models travel in these rounds."""
        network = self.network
        layers = {layer for plan in set(self.plans) for layer in plan.layers}
        return Traffic(
            frozenset(layer for layer in layers if layer is not None),
            None not in layers,
            any(not trusted.all() for trusted in network.trust[1:]),
            bool(network.trust[0][0]),
            self.threat.colluding,
            network.elected,
            network.tree.depth in network.sums.layers and network.sums.decode == "cloud",
        )

    @cached_property
    def sampled(self) -> np.ndarray:
        """float64 (N_L,), the rate at which a local step uses a record, or a device as a whole,
        which is in all of its minibatches, where it joins rounds by chance."""
        whole = self.network.participation is not None and self.privacy.unit == "device"
        return np.ones_like(self.rates) if whole else self.rates


def weights_up_to(network: Network, layers: np.ndarray) -> np.ndarray:
    """float64 (N_L,), the product of rho on each device's path to its ancestor of a layer.

    Args:
        layers: int64 (N_L,).
    """
    weights = np.ones(network.tree.n_devices)
    for layer in np.unique(layers):
        members = layers == layer
        weights[members] = network.shares(network.tree.depth, layer)[members]
    return weights
