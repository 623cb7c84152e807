"""A network: the tree, who is trusted in it, and who adds noise to what it sends up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2fdp.topology.tree import Tree
from m2fdp.topology.trust import Trust


@dataclass(frozen=True, eq=False)
class Network:
    """What an algorithm trains over.

    Attributes:
        tree: the aggregation tree.
        trust: see `m2fdp.topology.trust`.
        noised: for layer l = 1…L (index l-1), bool (N_l,): does the message from this node to
            its parent carry fresh noise.
        participants: devices of each lowest server that take part in a round, at most (s_c^t
            of J eq. 27): one number, int64 (N_{L-1},), or None, which means all.
    """

    tree: Tree
    trust: Trust
    noised: tuple[np.ndarray, ...]
    participants: int | np.ndarray | None = None

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        """rho: for layer l = 1…L, float64 (N_l,), each node's weight at its parent.

        A device's is its weight in the rounds that it takes part in.
        """
        uniform = self.tree.uniform_weights
        return (*uniform[:-1], 1.0 / self.present[self.tree.parents[-1]])

    @property
    def present(self) -> np.ndarray:
        """int64 (N_{L-1},): how many devices of each lowest server take part in a round."""
        children = self.tree.n_children(self.tree.depth - 1)
        return children if self.participants is None else np.minimum(children, self.participants)

    def smallest_fanout(self, layer: int) -> int:
        """s_l: the smallest number of children of layer l that take part in a round."""
        lowest = layer == self.tree.depth - 1
        return int(self.present.min()) if lowest else self.tree.smallest_fanout(layer)


def noise_plan(tree: Tree, trust: Trust) -> tuple[np.ndarray, ...]:
    """Which messages carry fresh noise (J eqs 9, 13): bool (N_l,) for layer l = 1…L.

    The message of node i to its parent c is noised iff c is untrusted and i is a device or a
    trusted server. A message from an untrusted server holds noise already.
    """
    return tuple(
        ~trust[layer - 1][parents] & (np.True_ if layer == tree.depth else trust[layer])
        for layer, parents in enumerate(tree.parents, start=1)
    )


def no_noise(tree: Tree) -> tuple[np.ndarray, ...]:
    """The plan in which nobody adds noise."""
    return tuple(np.zeros(len(parents), dtype=bool) for parents in tree.parents)


def noise_adders(network: Network) -> np.ndarray:
    """The node whose noise protects each device, its head: int64 (N_L, 2).

    Row j is (layer, index) of the last node that adds noise on the way up from device j before
    an untrusted server is reached; what is added beyond protects nobody from that server. Where
    nobody adds noise before it, the device counts as its own head (see `exposed_devices`).
    """
    tree = network.tree
    devices = np.arange(tree.n_devices)
    result = np.stack([np.full_like(devices, tree.depth), devices], axis=1)
    inside = np.ones(tree.n_devices, dtype=bool)
    for layer in range(tree.depth, 0, -1):
        node = tree.ancestors[layer]
        adds = inside & network.noised[layer - 1][node]
        result[adds, 0] = layer
        result[adds, 1] = node[adds]
        inside &= network.trust[layer - 1][tree.ancestors[layer - 1]]
    return result


def exposed_devices(network: Network) -> np.ndarray:
    """Whether what an untrusted server receives first of a device is in clear: bool (N_L,)."""
    layers, nodes = noise_adders(network).T
    noised = np.zeros(network.tree.n_devices, dtype=bool)
    for layer, of_layer in enumerate(network.noised, start=1):
        here = layers == layer
        noised[here] = of_layer[nodes[here]]
    return ~noised


def network_table(network: Network) -> pd.DataFrame:
    """One row a node, from the cloud down: node, layer, parent, kind, trusted, adds_noise."""
    tree = network.tree
    rows = []
    for layer, names in enumerate(tree.names):
        kind = "cloud" if layer == 0 else "device" if layer == tree.depth else "server"
        for i, name in enumerate(names):
            rows.append(
                {
                    "node": name,
                    "layer": layer,
                    "parent": "" if layer == 0 else _parent_name(tree, layer, i),
                    "kind": kind,
                    "trusted": bool(layer < tree.depth and network.trust[layer][i]),
                    "adds_noise": bool(layer > 0 and network.noised[layer - 1][i]),
                }
            )
    return pd.DataFrame(rows)


def _parent_name(tree: Tree, layer: int, i: int) -> str:
    return tree.names[layer - 1][tree.parents[layer - 1][i]]
