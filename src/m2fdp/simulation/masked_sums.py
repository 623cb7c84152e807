"""Sums by the protocol of secure aggregation, inside real training (`protocol: masks`).

Every member puts in what it would send, weighed, and the noise that it draws; the reader gets the
sum on a grid. It differs from the ideal sum by at most 1.5 n/f in a coordinate: of each of n members
a point of the grid 1/f is cut off its vector, and half of one is rounded off its noise.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from m2fdp.privacy.mechanisms import Clipping
from m2fdp.secure_aggregation import (
    BelowThreshold,
    Group,
    Input,
    Scale,
    Terms,
    secure_sum,
)
from m2fdp.topology.network import Network
from m2fdp.topology.sums import readers

logger = logging.getLogger(__name__)

# A Gaussian vector of M coordinates has a norm of at most (sqrt(M) + 8) deviations but once in 1e13.
_TAIL = 8
# A clipped norm may be so much larger by the rounding of 32 bits.
_ROUNDING = 1e-4


@dataclass(frozen=True, eq=False)
class Messages:
    """What the nodes of a layer put in, already weighed by what it counts with in the sum.

    Attributes:
        vectors: (N_l, M).
        noise: (N_l, M), or None.
        bounds: float64 (N_l,), of the vectors' norms.
        deviations: float64 (N_l,), of the noise.
    """

    vectors: Tensor
    noise: Tensor | None
    bounds: np.ndarray
    deviations: np.ndarray


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
        label: names the sum within the run; no other sum has it.
    """
    sums, tree, vectors = network.sums, network.tree, messages.vectors
    top = sums.reader_layer(layer)
    of_node = readers(tree, sums, layer)
    n_parameters = vectors.shape[1]
    result = vectors.new_zeros(tree.n_nodes(top), n_parameters)
    for reader in range(tree.n_nodes(top)):
        members = np.flatnonzero((of_node == reader) & present)
        if len(members) < 2 or not alive[members].any():
            continue
        threshold = int(sums.least_members(np.array([len(members)]))[0])
        group = Group(tree.names[top][reader], len(members), threshold)
        scale = Scale(
            float(messages.bounds[members].max()), float(messages.deviations[members].max())
        )
        inputs = [
            Input(_numbers(vectors, node), _numbers(messages.noise, node)) if alive[node] else None
            for node in members.tolist()
        ]
        terms = Terms(group, scale, n_parameters, f"{label}, layer {layer}")
        try:
            values = secure_sum(terms, inputs).values
        except BelowThreshold as lost:
            logger.warning("%s: %s", terms.label, lost)
            continue
        result[reader] = torch.as_tensor(values, dtype=vectors.dtype, device=vectors.device)
    return result


def _numbers(vectors: Tensor | None, node: int) -> np.ndarray | None:
    return None if vectors is None else vectors[node].detach().cpu().numpy()


def step_bound(clipping: Clipping, rates: np.ndarray) -> np.ndarray:
    """What bounds the norm of each device's part of one local step, over eta: float64 (N_L,).

    Args:
        rates: float64 (N_L,), q_j. At most all of its records are drawn, and divided by q_j of them.
    """
    if clipping.record_norm is not None:
        return clipping.record_norm / rates * (1 + _ROUNDING)
    if clipping.batch_norm is not None:
        return np.full(len(rates), clipping.batch_norm * (1 + _ROUNDING))
    if clipping.update_norm is not None:
        return np.full(len(rates), clipping.update_norm * (1 + _ROUNDING))
    return np.full(len(rates), np.inf)


def noise_bound(deviation: np.ndarray, n_parameters: int) -> np.ndarray:
    """A norm that a Gaussian vector does not pass but with a negligible chance."""
    return deviation * (sqrt(n_parameters) + _TAIL)
