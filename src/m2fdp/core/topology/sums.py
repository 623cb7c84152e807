"""Where messages are read as sums only (secure aggregation), and of how many at least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from m2fdp.core.topology.tree import Tree


@dataclass(frozen=True)
class SecureSums:
    """Secure aggregation in a network.

    A group are those whose messages one node reads as a sum. Members may fall silent, and a group
    of fewer than its threshold is lost: nobody reads anything of it.

    Attributes:
        layers: l of 1…L whose nodes' messages are read as sums only.
        decode: who reads them: the senders' parent, or the cloud, for which servers between add
            what they can't read.
        shared: whether only the noise of a group together is enough.
        threshold: t; None = floor(2n/3) + 1 of n.
        dropout: the chance that a member falls silent.
        cloud: the layer of the cloud; another than 0 where something stands above it.
    """

    layers: frozenset[int] = frozenset()
    decode: Literal["parent", "cloud"] = "parent"
    shared: bool = False
    threshold: int | None = None
    dropout: float = 0.0
    cloud: int = 0

    def reader_layer(self, layer: int) -> int:
        """The layer of those who read what nodes of a layer send."""
        return self.cloud if layer in self.layers and self.decode == "cloud" else layer - 1

    def masked_up(self, layer: int) -> bool:
        """Whether all links from nodes of a layer up to the cloud carry masked words only."""
        if layer not in self.layers or self.decode == "cloud":
            return layer in self.layers
        return all(at in self.layers for at in range(self.cloud + 1, layer))

    def least_members(self, members: np.ndarray) -> np.ndarray:
        """t of groups of n members each, int64."""
        usual = 2 * np.asarray(members) // 3 + 1
        return usual if self.threshold is None else np.full_like(usual, self.threshold)

    def fewest(self, layer: int, members: np.ndarray, colluding: int = 0) -> np.ndarray:
        """How many of n members are in every sum that is read, int64.

        All of them where nobody falls silent, and none has a reason to.
        """
        if layer in self.layers and (self.dropout > 0 or colluding > 0):
            return np.minimum(members, self.least_members(members))
        return members


# Every message is read as it is sent.
OPEN = SecureSums()


def readers(tree: Tree, sums: SecureSums, layer: int) -> np.ndarray:
    """Who reads what each node of a layer sends: int64 (N_layer,), indices in `reader_layer`."""
    return tree.ancestors_of(layer, sums.reader_layer(layer))
