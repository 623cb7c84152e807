"""The route of a record up the tree: what the network alone says of it."""

from __future__ import annotations

from dataclasses import dataclass

from m2fdp.core.topology.network import Network
from m2fdp.core.topology.sums import readers


@dataclass(frozen=True, eq=False)
class Route:
    """From devices over their head to the cloud, the same for all of them.

    Attributes:
        members: the devices, by index.
        head_layer: the layer of the node whose noise protects them first, their head.
        shares: rho of the nodes on the path from below the head down to the device.
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
        """Whether who reads the head's message reads others of its layer."""
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
        """Whether only their noise together is enough, so that none of them acts on its own."""
        return self.summed and self.network.sums.shared

    @property
    def cloud_reads(self) -> bool:
        """Whether the cloud reads their sum, past all servers between."""
        return self.summed and self.network.sums.decode == "cloud"

    @property
    def masked_up(self) -> bool:
        """Whether nobody but who reads it can make sense of what is sent, on all the way up from
        the head to the cloud."""
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
