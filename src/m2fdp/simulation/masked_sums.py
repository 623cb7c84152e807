"""Sums by the protocol of secure aggregation, inside real training (`protocol: masks`).

Every member puts in what it would send, weighed, and the noise that it draws; the reader gets the
sum on a grid. It differs from the ideal sum by less than n/f in a coordinate: of each of n members
half a point of the grid 1/f is rounded off, or up to one cut off where it draws no noise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from m2fdp.errors import InputError
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.privacy.mechanisms import Clipping
from m2fdp.privacy.summary import LARGEST_GRID
from m2fdp.privacy.variance import mean_variances
from m2fdp.secure_aggregation import (
    BelowThreshold,
    Group,
    Input,
    Scale,
    Terms,
    secure_sum,
)
from m2fdp.simulation.aggregation import References
from m2fdp.topology.network import Network
from m2fdp.topology.sums import readers

logger = logging.getLogger(__name__)

# A Gaussian vector of M coordinates is longer than sqrt(M) + 8 deviations once in 1e13 at most.
_TAIL = 8
# A clipped norm may be so much larger by the rounding of 32 bits.
_ROUNDING = 1e-4


@dataclass(frozen=True, eq=False)
class Messages:
    """What the nodes of a layer put in, already weighed by what it counts with in the sum.

    Attributes:
        vectors: (N_l, M).
        noise: (N_l, M), or None where nobody draws any.
        bounds: float64 (N_l,), of the vectors' norms.
        deviations: float64 (N_l,), of the noise.
        held: float64 (N_l,), of the noise that vectors hold already, at least.
    """

    vectors: Tensor
    noise: Tensor | None
    bounds: np.ndarray
    deviations: np.ndarray
    held: np.ndarray


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
        label: names run and step; see `m2fdp.simulation.survivors.SumRules.label`.
    """
    sums, tree, vectors = network.sums, network.tree, messages.vectors
    top = sums.reader_layer(layer)
    of_node = readers(tree, sums, layer)
    n_parameters = vectors.shape[1]
    put_in = vectors.cpu().numpy()
    noise = None if messages.noise is None else messages.noise.cpu().numpy()
    draws = messages.deviations > 0
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
            Input(put_in[node], None if noise is None or not draws[node] else noise[node])
            if alive[node]
            else None
            for node in members.tolist()
        ]
        terms = Terms(group, scale, n_parameters, f"{label}, layer {layer}")
        _check_grid(terms, float(np.hypot(messages.deviations, messages.held)[members].max()))
        try:
            values = secure_sum(terms, inputs).values
        except BelowThreshold as lost:
            logger.warning("%s: %s", terms.label, lost)
            continue
        result[reader] = torch.as_tensor(values, dtype=vectors.dtype, device=vectors.device)
    return result


def _check_grid(terms: Terms, deviation: float) -> None:
    """
    Args:
        deviation: of all noise in the loudest member's vector.

    Raises:
        InputError: the noise is so small against what it hides that its grid shows.
    """
    if deviation * terms.points * LARGEST_GRID < 1 and deviation > 0:
        raise InputError(
            "secure_aggregation.protocol",
            "masks",
            f"puts noise of deviation {deviation:.3g} on a grid of {1 / terms.points:.3g}, which "
            "is too coarse to count as a Gaussian; use ideal, or more noise",
        )


@dataclass(frozen=True, eq=False)
class Senders:
    """Who sends models in one aggregation, to those who read sums of them.

    Attributes:
        network: with the weights that models have.
        present: bool (N_L,), who takes part in the round.
        alive: by layer l of sums, bool (N_l,), who has not fallen silent.
        references: the models that updates are counted from.
        rates: float64 (N_L,), q_j.
        steps: how many local steps a round has.
        eta: the step size.
        label: names run and step.
    """

    network: Network
    mechanism: CalibratedMechanism
    present: np.ndarray
    alive: Mapping[int, np.ndarray]
    references: References
    rates: np.ndarray
    steps: int
    eta: float
    label: str

    def bring(self, layer: int, models: Tensor, noise: Tensor) -> Tensor:
        """The weighed sums of the updates of a layer's nodes, as they get to their readers.

        Args:
            models: (N_l, M), what they would send.
            noise: (N_l, M), what they add to it.

        Returns:
            (N_reader, M).
        """
        network, tree = self.network, self.network.tree
        top = network.sums.reader_layer(layer)
        share = network.shares(layer, top)
        weights = torch.as_tensor(share, dtype=models.dtype, device=models.device)[:, None]
        of_node = torch.as_tensor(readers(tree, network.sums, layer), device=models.device)
        updates = (models - self.references.of(top)[of_node]) * weights
        messages = Messages(
            updates,
            noise * weights,
            share * self._bounds(layer, models.shape[1]),
            share * self.eta * self.mechanism.noise.messages[layer],
            share * self.eta * np.sqrt(self._held(layer)),
        )
        present, alive = self._sends(layer), self.alive[layer]
        return masked_sums(network, layer, messages, present, alive & present, self.label)

    def _sends(self, layer: int) -> np.ndarray:
        """Which nodes of a layer send models: those below whom nobody steps together with a node
        nearer the cloud."""
        tree, lock_step = self.network.tree, self.mechanism.lock_step
        sends = np.zeros(tree.n_nodes(layer), dtype=bool)
        alone = lock_step.nodes[lock_step.group_of, 0] >= layer
        if layer == tree.depth:
            alone = alone & self.present
        sends[tree.ancestors[layer][alone]] = True
        return sends

    def _bounds(self, layer: int, n_parameters: int) -> np.ndarray:
        """Of the norm of each node's update, with the noise that it holds already: (N_layer,)."""
        network, tree = self.network, self.network.tree
        of_device = self.steps * self.eta * step_bound(self.mechanism.clipping, self.rates)
        clipped = np.bincount(
            tree.ancestors[layer], weights=network.shares(tree.depth, layer) * of_device
        )
        deviation = self.eta * np.sqrt(self.steps * self._held(layer))
        return clipped + noise_bound(deviation, n_parameters)

    def _held(self, layer: int) -> np.ndarray:
        """The variance over eta^2 of the noise that one local step, with messages and broadcasts
        after it, leaves in each node's model before it adds to its message: (N_layer,)."""
        network, noise = self.network, self.mechanism.noise
        drawn = [np.hypot(*of_layer) for of_layer in zip(noise.heads, noise.messages, strict=True)]
        for at, broadcast in enumerate(noise.broadcasts):
            drawn[at] = np.hypot(drawn[at], broadcast)
        drawn[layer] = noise.heads[layer]
        if layer == network.tree.depth:
            return drawn[layer] ** 2
        drawn[layer] = np.hypot(drawn[layer], noise.broadcasts[layer])
        below = mean_variances(network, drawn, np.ones(network.tree.n_devices))[layer]
        return drawn[layer] ** 2 + below


def step_bound(clipping: Clipping, rates: np.ndarray) -> np.ndarray:
    """What bounds the norm of each device's part of one local step, over eta: float64 (N_L,).

    Args:
        rates: float64 (N_L,), q_j. All records drawn, over the expected number of them, are most.
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
