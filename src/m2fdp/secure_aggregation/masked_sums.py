"""Sums by the protocol of secure aggregation, inside real training (`protocol: masks`).

Every member puts in what it would send, weighed, and the noise that it draws; the reader gets the
sum on a grid. It differs from the ideal sum by less than n/f in a coordinate: of each of n members
half a point of the grid 1/f is rounded off, or up to one cut off where it draws no noise.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.errors import InputError
from m2fdp.core.privacy.mechanisms import Clipping
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.sums import readers
from m2fdp.secure_aggregation.failures import BelowThreshold
from m2fdp.secure_aggregation.protocol import secure_sum
from m2fdp.secure_aggregation.terms import LARGEST_GRID, Group, Input, Scale, Terms

logger = logging.getLogger(__name__)

# A Gaussian vector of M coordinates is longer than sqrt(M) + 8 deviations once in 1e13 at most.
_TAIL = 8
# A clipped norm may be so much larger by the rounding of 32 bits.
_ROUNDING = 1e-4


@dataclass(frozen=True, eq=False)
class Spread:
    """How large what the nodes of a layer put in can be, as anybody can tell; float64 (N_l,) each.

    Attributes:
        bounds: largest norms of the vectors.
        deviations: the noise's standard deviations.
        held: the deviations of what noise vectors hold already, at least.
    """

    bounds: np.ndarray
    deviations: np.ndarray
    held: np.ndarray


@dataclass(frozen=True, eq=False)
class Messages:
    """What the nodes of a layer put in, already weighed by what it counts with in the sum.

    Attributes:
        vectors: (N_l, M).
        noise: (N_l, M).
    """

    vectors: Tensor
    noise: Tensor
    spread: Spread


def masked_sums(
    network: Network,
    layer: int,
    messages: Messages,
    present: np.ndarray,
    alive: np.ndarray,
    label: str,
) -> Tensor:
    """What the reader of each group gets: (N_reader, M); zeros where too few are left.

    Args:
        present: bool (N_l,), who takes part in the round.
        alive: bool (N_l,), who has not fallen silent before it sent its vector.
        label: names run and step; see `m2fdp.secure_aggregation.survivors.SumRules.label`.
    """
    sums, tree, vectors = network.sums, network.tree, messages.vectors
    top = sums.reader_layer(layer)
    of_node = readers(tree, sums, layer)
    n_parameters = vectors.shape[1]
    put_in = vectors.cpu().numpy()
    noise = messages.noise.cpu().numpy()
    draws = messages.spread.deviations > 0
    result = vectors.new_zeros(tree.n_nodes(top), n_parameters)
    for reader in range(tree.n_nodes(top)):
        members = np.flatnonzero((of_node == reader) & present)
        if len(members) < 2 or not alive[members].any():
            continue
        inputs = [
            Input(put_in[node], noise[node] if draws[node] else None) if alive[node] else None
            for node in members.tolist()
        ]
        terms = group_terms(network, layer, members, messages.spread, n_parameters, label)
        try:
            values = secure_sum(terms, inputs).values
        except BelowThreshold as lost:
            logger.warning("%s: %s", terms.label, lost)
            continue
        result[reader] = torch.as_tensor(values, dtype=vectors.dtype, device=vectors.device)
    return result


def group_terms(
    network: Network,
    layer: int,
    members: np.ndarray,
    spread: Spread,
    n_parameters: int,
    label: str,
) -> Terms:
    """What all parties of one sum know before it begins.

    Args:
        members: int64 (n,), nodes of the layer with one reader.
        label: see `masked_sums`.

    Raises:
        InputError: a sum that hides nothing, no grid for it, or one that its noise does not cover.
    """
    sums, tree = network.sums, network.tree
    threshold = int(sums.least_members(np.array([len(members)]))[0])
    reader = tree.names[sums.reader_layer(layer)][readers(tree, sums, layer)[members[0]]]
    group = Group(reader, len(members), threshold)
    scale = Scale(float(spread.bounds[members].max()), float(spread.deviations[members].max()))
    terms = Terms(group, scale, n_parameters, f"{label}, layer {layer}")
    _check_grid(terms, float(np.hypot(spread.deviations, spread.held)[members].max()))
    return terms


def _check_grid(terms: Terms, deviation: float) -> None:
    """Refuse noise so small against what it hides that its grid shows.

    Args:
        deviation: the loudest member's, of all noise in its vector.
    """
    if deviation and not deviation * terms.points * LARGEST_GRID >= 1:
        raise InputError(
            "secure_aggregation.protocol",
            "masks",
            f"puts noise of deviation {deviation:.3g} on a grid of {1 / terms.points:.3g}, which "
            "is too coarse to count as a Gaussian; use ideal, or more noise",
        )


def step_bound(clipping: Clipping, rates: np.ndarray) -> np.ndarray:
    """What bounds the norm of each device's part of one local step, over eta: float64 (N_L,).

    Args:
        rates: float64 (N_L,), q_j. All records drawn, over the expected number of them, are most.
    """
    if clipping.record_norm is not None:
        return clipping.record_norm / rates * (1 + _ROUNDING)
    norm = clipping.batch_norm or clipping.update_norm or np.inf
    return np.full(len(rates), norm * (1 + _ROUNDING))


def noise_bound(deviation: np.ndarray, n_parameters: int) -> np.ndarray:
    """A norm that a Gaussian vector does not pass but with a negligible chance."""
    return deviation * (sqrt(n_parameters) + _TAIL)
