"""What a promise rests on, and the route of a record up the tree."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network, heads_of, readers


@dataclass(frozen=True)
class Traffic:
    """How models travel in a run.

    Attributes:
        layers: the layers that aggregations end at; 0 among them.
        every_step: whether each local step ends in an aggregation.
        untrusted_servers: whether there are any between devices and cloud.
        cloud_is_trusted: whether the cloud is no adversary.
        colluding: how many tell what noise they drew.
        elected: whether the lowest servers are devices of their own.
        hidden: whether the lowest servers get masked words of devices' messages.
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
        """float64 (N_L,), the rate at which a local step uses a record; 1 for a whole device that
        joins rounds by chance."""
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


@dataclass(frozen=True, eq=False)
class Route:
    """The path from some devices over their head to the cloud.

    Attributes:
        members: the devices, by index.
        head_layer: the layer of their head, the first node whose noise protects them.
        shares: rho of the nodes below the head, down to the device.
    """

    network: Network
    members: tuple[int, ...]
    head_layer: int
    shares: tuple[float, ...]

    def ancestor(self, layer: int) -> int:
        """The first device's ancestor at a layer."""
        return int(self.network.tree.ancestors[layer][self.members[0]])

    @property
    def is_device(self) -> bool:
        """Whether each device is its own head."""
        return not self.shares

    @property
    def parent_is_cloud(self) -> bool:
        """Whether the head's parent is the cloud."""
        return self.head_layer == 1

    @property
    def parent_is_trusted(self) -> bool:
        """Whether the head's parent is a trusted server."""
        parents = self.head_layer - 1
        return parents >= 0 and bool(self.network.trust[parents][self.ancestor(parents)])

    @property
    def has_siblings(self) -> bool:
        """Whether the head's message is read beside others of its layer."""
        if self.head_layer == 0:
            return False
        of_node = readers(self.network.tree, self.network.sums, self.head_layer)
        return int((of_node == of_node[self.ancestor(self.head_layer)]).sum()) > 1

    def has_cousins(self, layer: int) -> bool:
        """Whether devices of other lowest servers share the device's ancestor at a layer, which
        is the head's or below it."""
        return any(share < 1 for share in self.shares[layer - self.head_layer : -1])

    @property
    def summed(self) -> bool:
        """Whether what the head and its siblings send is read as a sum only."""
        return self.head_layer in self.network.sums.layers

    @property
    def shared(self) -> bool:
        """Whether only the noise of all siblings together is enough: none acts on its own."""
        return self.summed and self.network.sums.shared

    @property
    def cloud_reads(self) -> bool:
        """Whether the cloud reads their sum, past all servers between."""
        return self.summed and self.network.sums.decode == "cloud"

    @property
    def masked_up(self) -> bool:
        """Whether messages from the head up to the cloud make sense to their readers alone."""
        return self.network.sums.masked_up(self.head_layer)

    @property
    def elected(self) -> bool:
        """Whether the head is a lowest server, and these are elected devices."""
        return self.network.elected and self.head_layer == self.network.tree.depth - 1

    @property
    def joins(self) -> float | None:
        """The chance of each device to join a round; None where nothing is left to chance."""
        return self.network.chance

    @property
    def splits(self) -> bool:
        """Whether the devices split their model with their parent."""
        return self.network.splits is not None and bool(self.network.splits[self.members[0]])
