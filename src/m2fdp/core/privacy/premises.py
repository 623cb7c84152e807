"""What a promise rests on, and the position of a data owner in the tree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network, heads_of


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
        """See `m2fdp.core.topology.network.heads_of`."""
        return heads_of(self.network)

    @property
    def head_layers(self) -> np.ndarray:
        """int64 (N_L,), the layer of every device's head."""
        return self.heads[:, 0]

    @property
    def weights_to_heads(self) -> np.ndarray:
        """float64 (N_L,), the product of rho on the path from each device to its head."""
        return weights_up_to(self.network, self.head_layers)

    @cached_property
    def tops(self) -> frozenset[int | None]:
        """The layers that local steps' aggregations end at; None for a step without one."""
        return frozenset(top for plan in set(self.plans) for top in plan.layers)

    @property
    def untrusted_servers(self) -> bool:
        """Whether there are any between devices and cloud."""
        return any(not trusted.all() for trusted in self.network.trust[1:])

    def last_release(self, head_layer: int) -> int:
        """The lowest layer that any aggregation with a release of a head of a layer ends at."""
        bound = max(head_layer, 1)  # a global aggregation releases what the cloud noises
        return max(top for top in self.tops if top is not None and top < bound)

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
class Position:
    """Devices that share everything an accountant needs: their path to the cloud, and its noise.

    Their head is the first node whose noise protects them. All noises are in the unit of the
    position's laws, which a record moves its head's message by. Noise further up is over the weight
    of this message there. `mean` and `inside` leave out what an observer knows, in the words of
    `m2fdp.core.privacy.sight`.

    Attributes:
        members: the devices, by index.
        shares: rho of the nodes below the head, down to the device.
        sampling_rate: q.
        unit: what shift 1 of the laws means.
        noise: the deviation of the head's own noise.
        inside: the variance that nodes below the head add to its message (NOBODY). BESIDE leaves
            out the loudest other device's, and all where devices that serve read what is sent.
        mean: the deviation of the noise of the head and of its siblings that are heads, in the mean
            that is read of them (NOBODY). BESIDE leaves out the loudest sibling's, COLLUDING that
            of all who tell theirs, TOGETHER a sibling's and that of those who tell it.
        above: the variance that the head's ancestor of each layer l = 0…h-1 adds, h the head's.
        parent_is_trusted: whether the head's parent is a trusted server.
        has_siblings: whether the head's message is read beside others of its layer.
        splits: whether the devices split their model with their parent.
        unnoticed: whether nothing that leaves the head shows that a device of the position joined.
    """

    network: Network
    members: tuple[int, ...]
    head_layer: int
    shares: tuple[float, ...]
    sampling_rate: float
    unit: float
    noise: float
    inside: Mapping[str, float]
    mean: Mapping[str, float]
    above: tuple[float, ...]
    parent_is_trusted: bool = False
    has_siblings: bool = False
    splits: bool = False
    unnoticed: bool = False

    @property
    def is_device(self) -> bool:
        """Whether each device is its own head."""
        return not self.shares

    @property
    def drawn_by_devices(self) -> bool:
        """Whether devices draw the head's noise: their own, or by turns that of their server."""
        lowest = self.network.tree.depth - 1
        return self.is_device or (self.network.members_serve and self.head_layer == lowest)

    @property
    def parent_is_cloud(self) -> bool:
        return self.head_layer == 1

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
    def joins(self) -> float | None:
        """The chance of each device to join a round; None where nothing is left to chance."""
        return self.network.chance
