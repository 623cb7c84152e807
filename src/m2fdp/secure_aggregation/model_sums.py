"""How large what nodes put into a masked sum of models can be, the grid that follows from it, and
what members send.

A sum on the grid 1/f differs from the ideal one by less than n/f in a coordinate: of each of n
members half a point is rounded off, or up to one cut off where it draws no noise.

A message that is read in a sum only is a masked vector of M words of 32 bits, whatever a parameter
has. It comes with what hides and unmasks it: public keys, sealed shares for every other member, and
shares for the sum that is read (Bonawitz et al. 2017). All of it is sent anew for every sum. Where
the cloud reads the sum, servers between send one vector, which they have added up, and hand on all
else that members below send. `protocol: ideal` has the messages of `masks`. Each member's number in
a message takes 4 bytes; the transport's own headers do not count.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from m2fdp.core.errors import InputError
from m2fdp.core.privacy.mechanisms import Clipping, Protection
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network, readers
from m2fdp.secure_aggregation.keys import SHARE_BYTES
from m2fdp.secure_aggregation.terms import LARGEST_GRID, Group, Scale, Terms

# A Gaussian vector of M coordinates is longer than sqrt(M) + 8 deviations once in 1e13 at most.
_TAIL = 8
# A clipped norm may be so much larger by the rounding of 32 bits.
_ROUNDING = 1e-4
_ID, _WORD, _PUBLIC_KEYS = 4, 4, 2 * 32
# Two shares and the tag of their seal.
_PARCEL = _ID + 2 * SHARE_BYTES + 16


@dataclass(frozen=True, eq=False)
class Spread:
    """Public bounds of what the nodes of a layer put in, float64 (N_l,) each. They are the vectors'
    largest norms, the noise's deviations, and the least deviations of noise that vectors hold
    already."""

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
    of_device = steps * eta * _step_bound(mechanism.clipping, rates)
    weights = network.shares(network.tree.depth, layer) * of_device
    clipped = np.bincount(network.tree.ancestors[layer], weights=weights)
    held = _held(network, mechanism, layer)
    bounds = clipped + eta * np.sqrt(steps * held) * (sqrt(n_parameters) + _TAIL)
    share = network.shares(layer, network.sums.reader_layer(layer))
    return Spread(
        share * bounds, share * eta * mechanism.noise.messages[layer], share * eta * np.sqrt(held)
    )


def _step_bound(clipping: Clipping, rates: np.ndarray) -> np.ndarray:
    """What bounds the norm of each device's part of one local step, over eta: float64 (N_L,). All
    records drawn, over the expected number of them, are most."""
    if clipping.record_norm is not None:
        return clipping.record_norm / rates * (1 + _ROUNDING)
    norm = clipping.batch_norm or clipping.update_norm or np.inf
    return np.full(len(rates), norm * (1 + _ROUNDING))


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


def overhead_bits(n_members: float) -> float:
    """What each of so many members sends besides its masked vector, where all come to the end."""
    return 8 * (_PUBLIC_KEYS + (n_members - 1) * _PARCEL + n_members * (_ID + SHARE_BYTES))


def with_overhead(
    network: Network, n_parameters: int, bits: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, ...]:
    """The bits of every node's message, layer l = 1…L, where some are read in sums only.

    Where devices join by chance, of the expected number of others.
    """
    tree, sums, bits = network.tree, network.sums, tuple(map(np.copy, bits))
    vector, of_one = 8 * _WORD * n_parameters, overhead_bits(1)
    each_other = overhead_bits(2) - of_one
    for layer in sums.layers:
        by_chance = layer == tree.depth and network.chance is not None
        others = (network.group_sizes(layer) - 1) * (network.chance if by_chance else 1.0)
        overhead = of_one + each_other * others
        bits[layer - 1][:] = vector + overhead
        sent = overhead * (network.odds if layer == tree.depth else 1.0)
        for relay in range(layer - 1, sums.reader_layer(layer), -1):
            handed_on = np.bincount(tree.ancestors_of(layer, relay), weights=sent)
            bits[relay - 1][:] = vector + handed_on
    return bits
