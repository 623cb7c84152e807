"""How large what nodes put into a masked sum of models can be, and the grid that follows from it.

A sum on the grid 1/f differs from the ideal one by less than n/f in a coordinate: of each of n
members half a point is rounded off, or up to one cut off where it draws no noise.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from m2fdp.core.errors import InputError
from m2fdp.core.privacy.mechanisms import Clipping, Protection
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network, readers
from m2fdp.secure_aggregation.terms import LARGEST_GRID, Group, Scale, Terms

# A Gaussian vector of M coordinates is longer than sqrt(M) + 8 deviations once in 1e13 at most.
_TAIL = 8
# A clipped norm may be so much larger by the rounding of 32 bits.
_ROUNDING = 1e-4


@dataclass(frozen=True, eq=False)
class Spread:
    """How large what the nodes of a layer put in can be, as anybody can tell, float64 (N_l,) each:
    the vectors' largest norms, the noise's deviations, and those of noise that vectors hold, at
    least."""

    bounds: np.ndarray
    deviations: np.ndarray
    held: np.ndarray


def model_spread(
    network: Network,
    mechanism: Protection,
    plan: RoundPlan,
    rates: np.ndarray,
    layer: int,
    n_parameters: int,
) -> Spread:
    """How large the updates and the noise that nodes of a layer put in can be, weighed, by rates
    q_j float64 (N_L,)."""
    steps, eta = len(plan.layers), plan.step_size
    of_device = steps * eta * step_bound(mechanism.clipping, rates)
    weights = network.shares(network.tree.depth, layer) * of_device
    clipped = np.bincount(network.tree.ancestors[layer], weights=weights)
    held = _held(network, mechanism, layer)
    bounds = clipped + noise_bound(eta * np.sqrt(steps * held), n_parameters)
    share = network.shares(layer, network.sums.reader_layer(layer))
    return Spread(
        share * bounds, share * eta * mechanism.noise.messages[layer], share * eta * np.sqrt(held)
    )


def _held(network: Network, mechanism: Protection, layer: int) -> np.ndarray:
    """The variance over eta^2 of the noise that one local step, with messages and broadcasts after
    it, leaves in each node's model before it adds to its message: (N_layer,)."""
    noise = mechanism.noise
    drawn = [np.hypot(*of_layer) for of_layer in zip(noise.heads, noise.messages, strict=True)]
    for at, broadcast in enumerate(noise.broadcasts):
        drawn[at] = np.hypot(drawn[at], broadcast)
    drawn[layer] = noise.heads[layer]
    if layer == network.tree.depth:
        return drawn[layer] ** 2
    drawn[layer] = np.hypot(drawn[layer], noise.broadcasts[layer])
    below_node = mean_variances(network, drawn, np.ones(network.tree.n_devices))[layer]
    return drawn[layer] ** 2 + below_node


def group_terms(
    network: Network, layer: int, members: np.ndarray, spread: Spread, n_parameters: int, label: str
) -> Terms:
    """What all parties of one sum, of nodes int64 (n,) of the layer with one reader, know before it
    begins. No other sum has its label. An `InputError` where it hides nothing, or its noise does
    not cover its grid."""
    sums, tree = network.sums, network.tree
    threshold = int(sums.least_members(np.array([len(members)]))[0])
    reader = tree.names[sums.reader_layer(layer)][readers(tree, sums, layer)[members[0]]]
    group = Group(reader, len(members), threshold)
    scale = Scale(float(spread.bounds[members].max()), float(spread.deviations[members].max()))
    terms = Terms(group, scale, n_parameters, f"{label}, layer {layer}")
    deviation = float(np.hypot(spread.deviations, spread.held)[members].max())
    if deviation and not deviation * terms.points * LARGEST_GRID >= 1:
        raise InputError(
            "secure_aggregation.protocol",
            "masks",
            f"puts noise of deviation {deviation:.3g} on a grid of {1 / terms.points:.3g}, which "
            "is too coarse to count as a Gaussian; use ideal, or more noise",
        )
    return terms


def step_bound(clipping: Clipping, rates: np.ndarray) -> np.ndarray:
    """What bounds the norm of each device's part of one local step, over eta: float64 (N_L,). All
    records drawn, over the expected number of them, are most."""
    if clipping.record_norm is not None:
        return clipping.record_norm / rates * (1 + _ROUNDING)
    norm = clipping.batch_norm or clipping.update_norm or np.inf
    return np.full(len(rates), norm * (1 + _ROUNDING))


def noise_bound(deviation: np.ndarray, n_parameters: int) -> np.ndarray:
    """A norm that a Gaussian vector does not pass but with a negligible chance."""
    return deviation * (sqrt(n_parameters) + _TAIL)
