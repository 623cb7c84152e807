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

import numpy as np

from m2fdp.topology.network import Network


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


def certain_variances(
    network: Network, deviations: Sequence[np.ndarray], top: int = 0
) -> tuple[np.ndarray, ...]:
    """`mean_variances`, whichever devices take part: at least so much.

    Where not all devices do, each counts with the noise of the quietest of its siblings.
    """
    return mean_variances(network, _quietest(network, deviations), network.odds, top)


def family_variances(
    network: Network, deviations: Sequence[np.ndarray], layer: int
) -> tuple[np.ndarray, np.ndarray]:
    """What the nodes of one layer add to their parents' means, as each of them can count on it.

    Args:
        deviations: as in `mean_variances`; only those of the layer count.

    Returns:
        For each node of the layer, float64 (N_layer,): the variance of its own and its siblings'
        noise in the parent's mean, in rounds that it takes part in; and what a sibling that
        knows its own noise, the loudest one, leaves of it.
    """
    tree = network.tree
    parents = tree.parents[layer - 1]
    if layer == tree.depth and network.participants is not None:
        weights = network.weights[layer - 1]
        own = (weights * deviations[layer]) ** 2
        quietest = (weights * _quietest(network, deviations)[layer]) ** 2
        present = network.present[parents]
        return own + quietest * (present - 1), own + quietest * np.maximum(present - 2, 0)
    alone = [np.zeros(tree.n_nodes(at)) for at in range(tree.depth + 1)]
    alone[layer] = deviations[layer]
    everybody = np.ones(tree.n_devices)
    together = mean_variances(network, alone, everybody, layer - 1)[0][parents]
    own = network.weights[layer - 1] ** 2 * deviations[layer] ** 2
    return together, np.maximum(together - _loudest_sibling(parents, own), 0)


def loudest_inside(
    network: Network, deviations: Sequence[np.ndarray], layer: int
) -> np.ndarray:
    """What one device, the loudest one, adds to the message of its ancestor at a layer.

    Returns:
        For each device, float64 (N_L,): the largest variance that any other device below the same
        ancestor adds to its message; 0 if there is none.
    """
    own = (network.shares(network.tree.depth, layer) * deviations[-1]) ** 2
    return _loudest_sibling(network.tree.ancestors[layer], own)


def _quietest(network: Network, deviations: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The deviations with each device's replaced by the least of its siblings and its own."""
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
