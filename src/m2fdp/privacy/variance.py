"""The variance of the noise in every model of the tree: one recursion, layer by layer.

A node's message is the mean of what its children send plus noise of its own, and independent
noises add in variance:

    Var(message of c) = Var(mean at c) + deviation_c^2,
    Var(mean at c) = sum over children i of rho_i^2 Var(message of i).

The engine draws by it, the ledger and the calibration credit by it, and the bounds on convergence
price by it. A promise holds only where all of them agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from m2fdp.topology.network import Network
from m2fdp.topology.sums import readers


def mean_variances(
    network: Network, deviations: Sequence[np.ndarray], sent: np.ndarray, top: int = 0
) -> tuple[np.ndarray, ...]:
    """The variance of the noise in the mean that each server forms of what its children send.

    Args:
        deviations: for layer l = 0…L (index l), (N_l,), of the noise that each node adds to its
            message; those of layers up to `top` play no part.
        sent: (N_L,), which devices send, or how often each does: then variances are expected ones.
        top: the layer up to which models travel.

    Returns:
        For layer l = top…L-1 (index l - top), float64 (N_l,), in the unit of deviations squared.
    """
    tree = network.tree
    weights = network.weights
    variance: np.ndarray = np.zeros(tree.n_devices)
    result = []
    for layer in range(tree.depth, top, -1):
        messages = sent * (variance + deviations[layer] ** 2)
        variance = np.bincount(
            tree.parents[layer - 1],
            weights=weights[layer - 1] ** 2 * messages,
            minlength=tree.n_nodes(layer - 1),
        )
        sent = np.ones_like(variance)
        result.append(variance)
    return tuple(reversed(result))


def certain_inside(network: Network, deviations: Sequence[np.ndarray], layer: int) -> np.ndarray:
    """The variance that nodes below add to the message of each device's ancestor at a layer, in
    rounds in which this message follows from the device's: float64 (N_L,), at least so much.

    Where not all devices take part, each counts with the noise of the quietest of its siblings, and
    with none where each joins by chance. Where some of those who are summed may fall silent, the
    loudest ones do; and of sums that the device's own message is not in, all may be lost.

    Args:
        deviations: as in `mean_variances`.
    """
    tree, sums = network.tree, network.sums
    quietest = _quietest(network, deviations)
    if not (sums.layers and sums.dropout):
        variances = mean_variances(network, quietest, network.odds)[layer]
        return variances[tree.ancestors[layer]]
    of_path: np.ndarray = np.zeros(tree.n_devices)
    of_others: np.ndarray = np.zeros(tree.n_devices)
    for at in range(tree.depth, layer, -1):
        parents, nodes = tree.parents[at - 1], tree.ancestors[at]
        squares, drawn = network.weights[at - 1] ** 2, quietest[at] ** 2
        messages = squares * (of_others + drawn)
        sizes = network.group_sizes(at)
        present = tree.n_children(at - 1)
        if at == tree.depth:
            present = network.present
        there = present[parents] - (sizes - sums.fewest(at, sizes))
        beside = with_quietest(parents, messages, there - 1) - messages
        of_path = (squares * drawn)[nodes] + squares[nodes] * of_path + np.maximum(beside, 0)[nodes]
        of_others = np.zeros(tree.n_nodes(at - 1))
        if at not in sums.layers or sums.decode == "cloud":
            least = np.where(there > 0, with_quietest(parents, messages, there - 1), 0.0)
            of_others += np.inf
            np.minimum.at(of_others, parents, least)
    return of_path


@dataclass(frozen=True, eq=False)
class Family:
    """What the nodes of one layer add to the mean that is read of them, float64 (N_layer,) each.

    Of each node with those that its reader reads together, in rounds that it takes part in.

    Attributes:
        together: the variance of their noise.
        but_one: what the loudest of the others, who knows its own noise, leaves of it.
        but_colluders: what the loudest ones that tell theirs leave of it.
    """

    together: np.ndarray
    but_one: np.ndarray
    but_colluders: np.ndarray


def family_variances(
    network: Network, deviations: Sequence[np.ndarray], layer: int, colluding: int = 0
) -> Family:
    """What the nodes of one layer add to the mean that is read of them, as each can count on it.

    Where some of a group may be missing, these are the loudest ones; of devices that join by
    chance all others may.

    Args:
        deviations: as in `mean_variances`; only those of the layer count.
        colluding: how many of a group tell what noise they drew.
    """
    tree = network.tree
    parents = tree.parents[layer - 1]
    if layer == tree.depth and network.chance is not None:
        alone = (network.shares(layer, network.sums.reader_layer(layer)) * deviations[layer]) ** 2
        return Family(alone, alone, alone)
    if layer in network.sums.layers:
        top = network.sums.reader_layer(layer)
        own = (network.shares(layer, top) * deviations[layer]) ** 2
        groups, sizes = readers(tree, network.sums, layer), network.group_sizes(layer)
        fewest = network.sums.fewest(layer, sizes)
        with_colluders = network.sums.fewest(layer, sizes, colluding)
        return Family(
            with_quietest(groups, own, fewest - 1),
            with_quietest(groups, own, fewest - 2),
            with_quietest(groups, own, with_colluders - 1 - colluding),
        )
    weights = network.weights[layer - 1]
    if layer == tree.depth and network.participants is not None:
        own = (weights * deviations[layer]) ** 2
        quietest = (weights * _quietest(network, deviations)[layer]) ** 2
        present = network.present[parents]
        together, but_one, but_colluders = (
            own + quietest * np.maximum(present - 1 - gone, 0) for gone in (0, 1, colluding)
        )
        return Family(together, but_one, but_colluders)
    of_layer = [np.zeros(tree.n_nodes(at)) for at in range(tree.depth + 1)]
    of_layer[layer] = deviations[layer]
    everybody = np.ones(tree.n_devices)
    together = mean_variances(network, of_layer, everybody, layer - 1)[0][parents]
    own = weights**2 * deviations[layer] ** 2
    but_one = np.maximum(together - _loudest_sibling(parents, own), 0)
    if not colluding:
        return Family(together, but_one, together)
    siblings = tree.n_children(layer - 1)[parents]
    return Family(together, but_one, with_quietest(parents, own, siblings - 1 - colluding))


def with_quietest(groups: np.ndarray, variance: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Each node's variance and that of so many others of its group, the quietest ones."""
    order = np.lexsort((variance, groups))
    starts = np.searchsorted(groups[order], np.arange(groups.max() + 1))
    rank = np.empty(len(groups), dtype=np.int64)
    rank[order] = np.arange(len(groups)) - starts[groups[order]]
    sums = np.concatenate([[0.0], np.cumsum(variance[order])])
    start, others = starts[groups], np.maximum(others, 0)
    among_them = rank < others
    quietest = np.maximum(sums[start + others + among_them] - sums[start], 0)
    return np.where(among_them, quietest, quietest + variance)


def loudest_inside(network: Network, deviations: Sequence[np.ndarray], layer: int) -> np.ndarray:
    """What one device, the loudest one, adds to the message of its ancestor at a layer.

    Returns:
        For each device, float64 (N_L,): the largest variance that any other device below the same
        ancestor adds to its message; 0 if there is none.
    """
    own = (network.shares(network.tree.depth, layer) * deviations[-1]) ** 2
    return _loudest_sibling(network.tree.ancestors[layer], own)


def _quietest(network: Network, deviations: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The deviations with each device's replaced by the least of its siblings and its own, or by
    none where all of them may be missing."""
    if network.chance is not None:
        return (*deviations[:-1], np.zeros_like(deviations[-1]))
    if network.participants is None:
        return tuple(deviations)
    parents = network.tree.parents[-1]
    least = np.full(network.tree.n_nodes(network.tree.depth - 1), np.inf)
    np.minimum.at(least, parents, deviations[-1])
    return (*deviations[:-1], least[parents])


def _loudest_sibling(parents: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """For each node the largest variance among its siblings, itself left out; 0 if none."""
    n = int(parents.max()) + 1
    order = np.lexsort((-variance, parents))
    starts = np.searchsorted(parents[order], np.arange(n))
    best = order[starts]
    largest = variance[best][parents]
    second = np.zeros(n)
    has_second = np.bincount(parents, minlength=n) > 1
    second[has_second] = variance[order[starts[has_second] + 1]]
    mine = best[parents] == np.arange(len(parents))
    return np.where(mine, second[parents], largest)
