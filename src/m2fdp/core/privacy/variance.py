"""The variance of the noise in every model of the tree: one recursion, layer by layer.

A node's message is the mean of what its children send plus noise of its own, and independent
noises add in variance:

    Var(message of c) = Var(mean at c) + deviation_c^2,
    Var(mean at c) = sum over children i of rho_i^2 Var(message of i).

The engine draws by it, the ledger and the calibration credit by it, and the bounds on convergence
price by it. A promise holds only where all of them agree.
"""

from collections.abc import Sequence

import numpy as np

from m2fdp.core.topology.network import Network, readers


def mean_variances(
    network: Network, deviations: Sequence[np.ndarray], sent: np.ndarray, top: int = 0
) -> tuple[np.ndarray, ...]:
    """The variance of the noise in the mean that each server forms of what its children send:
    float64 (N_l,) for layer l = top…L-1.

    Args:
        deviations: each node's own, (N_l,) for layer l = 0…L; only those below `top` count.
        sent: (N_L,), which devices send, or how often: then variances are expected ones.
        top: the layer up to which models travel.
    """
    tree, weights = network.tree, network.weights
    variance: np.ndarray = np.zeros(tree.n_devices)
    result = []
    for layer in range(tree.depth, top, -1):
        messages = weights[layer - 1] ** 2 * (sent * (variance + deviations[layer] ** 2))
        variance = np.bincount(tree.parents[layer - 1], messages, tree.n_nodes(layer - 1))
        sent = np.ones_like(variance)
        result.append(variance)
    return tuple(reversed(result))


def certain_inside(network: Network, deviations: Sequence[np.ndarray], layer: int) -> np.ndarray:
    """The least variance that nodes below add to the message of each device's ancestor at a layer,
    in rounds in which this message follows from the device's: float64 (N_L,).

    Where not all devices take part, each counts with the noise of its quietest sibling, and with
    none where each joins by chance. If senders may fall silent, the loudest ones of a sum do. Sums
    without the device's own message may all be lost.
    """
    tree, sums = network.tree, network.sums
    quietest = (*deviations[:-1], _quietest(network, deviations[-1]))
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
        members = present[parents] - (sizes - sums.fewest(at, sizes))
        of_siblings = with_quietest(parents, messages, members - 1) - messages
        of_path = (
            (squares * drawn)[nodes] + squares[nodes] * of_path + np.maximum(of_siblings, 0)[nodes]
        )
        of_others = np.zeros(tree.n_nodes(at - 1))
        if at not in sums.layers or sums.decode == "cloud":
            least = np.where(members > 0, with_quietest(parents, messages, members - 1), 0.0)
            of_others += np.inf
            np.minimum.at(of_others, parents, least)
    return of_path


def family_variance(
    network: Network, drawn: np.ndarray, layer: int, known: int = 0, told: bool = False
) -> np.ndarray:
    """The variance that each node of a layer can count on in the mean that is read of it and
    others, in rounds that it takes part in: float64 (N_layer,).

    Where some of a group may be missing, the loudest others are. Of devices that join by chance all
    others may be.

    Args:
        drawn: float64 (N_layer,), deviations.
        known: how many others know what they drew: the loudest.
        told: whether these tell each other, and may fall silent in a sum for that.
    """
    tree, parents = network.tree, network.tree.parents[layer - 1]
    read = (network.shares(layer, network.sums.reader_layer(layer)) * drawn) ** 2
    if layer == tree.depth and network.chance is not None:
        return np.asarray(read)
    if layer in network.sums.layers:
        fewest = network.sums.fewest(layer, network.group_sizes(layer), known if told else 0)
        return with_quietest(readers(tree, network.sums, layer), read, fewest - 1 - known)
    weights = network.weights[layer - 1]
    if layer == tree.depth and network.participants is not None:
        quietest = (weights * _quietest(network, drawn)) ** 2
        others = np.maximum(network.present[parents] - 1 - known, 0)
        return np.asarray((weights * drawn) ** 2 + quietest * others)
    variance = weights**2 * drawn**2
    if told:
        return with_quietest(parents, variance, tree.n_children(layer - 1)[parents] - 1 - known)
    in_mean = np.bincount(parents, weights=variance)[parents]
    return np.maximum(in_mean - _loudest_sibling(parents, variance), 0) if known else in_mean


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
    """The largest variance that any other device below the same ancestor of a layer adds to the
    ancestor's message, for each device; 0 if there is none: float64 (N_L,)."""
    of_devices = (network.shares(network.tree.depth, layer) * deviations[-1]) ** 2
    return _loudest_sibling(network.tree.ancestors[layer], of_devices)


def _quietest(network: Network, drawn: np.ndarray) -> np.ndarray:
    """For each device the least of its siblings' deviations and its own, or none where all of them
    may be missing: float64 (N_L,)."""
    if network.chance is not None:
        return np.zeros_like(drawn)
    if network.participants is None:
        return drawn
    parents = network.tree.parents[-1]
    smallest = np.full(network.tree.n_nodes(network.tree.depth - 1), np.inf)
    np.minimum.at(smallest, parents, drawn)
    return smallest[parents]


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
