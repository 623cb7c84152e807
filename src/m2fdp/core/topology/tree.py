"""The aggregation tree (J Sec. II-B): cloud = layer 0, edge servers = 1…L-1, devices = L."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Tree:
    """A rooted tree whose devices are all at layer L.

    Attributes:
        parents: int64 (N_l,), for layer l = 1…L (index l-1): the index, within layer l-1, of each
            node's parent. Nodes of a layer are ordered by parent, so each array is non-decreasing
            and children are contiguous.
        names: the nodes' names, unique over the tree, for layer l = 0…L (index l).
    """

    parents: tuple[np.ndarray, ...]
    names: tuple[tuple[str, ...], ...]

    @property
    def depth(self) -> int:
        """L, the number of layers below the cloud."""
        return len(self.parents)

    @property
    def n_devices(self) -> int:
        return len(self.parents[-1])

    def n_nodes(self, layer: int) -> int:
        """N_l: the number of nodes of a layer."""
        return 1 if layer == 0 else len(self.parents[layer - 1])

    def n_children(self, layer: int) -> np.ndarray:
        """int64 (N_l,): the number of children of each node of layer l in 0…L-1."""
        return np.bincount(self.parents[layer], minlength=self.n_nodes(layer))

    def smallest_fanout(self, layer: int) -> int:
        """s_l: the smallest number of children of a node of layer l (J Table I)."""
        return int(self.n_children(layer).min())

    @cached_property
    def ancestors(self) -> tuple[np.ndarray, ...]:
        """For layer l = 0…L, int64 (N_L,): each device's ancestor at that layer."""
        result = [np.arange(self.n_devices)]
        for parent in reversed(self.parents):
            result.append(parent[result[-1]])
        return tuple(reversed(result))

    def ancestors_of(self, layer: int, top: int) -> np.ndarray:
        """int64 (N_layer,): the ancestor of each node of a layer at layer `top`."""
        nodes = np.arange(self.n_nodes(layer))
        for at in range(layer, top, -1):
            nodes = self.parents[at - 1][nodes]
        return nodes

    def below(self, layer: int, nodes: range) -> list[range]:
        """A range a layer, from this one to L: the consecutive nodes given, then all below."""
        spans = [nodes]
        for parents in self.parents[layer:]:
            start, stop = np.searchsorted(parents, [spans[-1].start, spans[-1].stop])
            spans.append(range(int(start), int(stop)))
        return spans

    def sibling_rank(self, order: np.ndarray | None = None) -> np.ndarray:
        """Each device's place, from 0, among its siblings by an order (N_L,): int64 (N_L,)."""
        parents, devices = self.parents[-1], np.arange(self.n_devices)
        places = np.empty_like(devices)
        places[np.lexsort((devices if order is None else order, parents))] = devices
        return places - np.searchsorted(parents, parents)

    @cached_property
    def uniform_weights(self) -> tuple[np.ndarray, ...]:
        """rho of J Sec. II-C: for layer l = 1…L, 1/(number of siblings) per node, float64."""
        return tuple(
            1.0 / self.n_children(layer)[parent] for layer, parent in enumerate(self.parents)
        )
