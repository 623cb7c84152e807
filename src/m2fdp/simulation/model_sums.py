"""Sums of the models that nodes send, by the protocol of secure aggregation (`protocol: masks`)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from m2fdp.privacy.variance import mean_variances
from m2fdp.simulation.aggregation import References
from m2fdp.simulation.masked_sums import Messages, masked_sums, noise_bound, step_bound
from m2fdp.simulation.stretches import Round
from m2fdp.topology.sums import readers


def model_sums(
    current: Round, step: int, layer: int, models: Tensor, noise: Tensor, references: References
) -> Tensor:
    """The weighed sums (N_reader, M) of the updates of a layer's nodes, as they get to their
    readers.

    Args:
        step: the number k of the local step that the aggregation comes after.
        models: (N_l, M), what the nodes would send.
        noise: (N_l, M), what they add to it.
        references: the models that updates are counted from.
    """
    network, eta = current.network, current.plan.step_size
    top = network.sums.reader_layer(layer)
    share = network.shares(layer, top)
    weights = torch.as_tensor(share).to(models)[:, None]
    of_node = torch.as_tensor(readers(network.tree, network.sums, layer), device=models.device)
    messages = Messages(
        (models - references.of(top)[of_node]) * weights,
        noise * weights,
        share * _bounds(current, layer, models.shape[1]),
        share * eta * current.mechanism.noise.messages[layer],
        share * eta * np.sqrt(_held(current, layer)),
    )
    present, label = _sends(current, layer), current.simulation.sums.label(current.number, step)
    return masked_sums(network, layer, messages, present, current.alive[layer] & present, label)


def _sends(current: Round, layer: int) -> np.ndarray:
    """Which nodes of a layer send models: those below whom nobody steps together with a node nearer
    the cloud."""
    tree, lock_step = current.network.tree, current.mechanism.lock_step
    sends = np.zeros(tree.n_nodes(layer), dtype=bool)
    devices = lock_step.nodes[lock_step.group_of, 0] >= layer
    if layer == tree.depth:
        devices = devices & current.learners.present
    sends[tree.ancestors[layer][devices]] = True
    return sends


def _bounds(current: Round, layer: int, n_parameters: int) -> np.ndarray:
    """Bounds of the norm of each node's update, with the noise that it holds already:
    (N_layer,)."""
    network, steps, eta = current.network, len(current.plan.layers), current.plan.step_size
    clipping, rates = current.mechanism.clipping, current.simulation.shards.rates
    of_device = steps * eta * step_bound(clipping, rates)
    weights = network.shares(network.tree.depth, layer) * of_device
    clipped = np.bincount(network.tree.ancestors[layer], weights=weights)
    deviation = eta * np.sqrt(steps * _held(current, layer))
    return clipped + noise_bound(deviation, n_parameters)


def _held(current: Round, layer: int) -> np.ndarray:
    """The variance over eta^2 of the noise that one local step, with messages and broadcasts after
    it, leaves in each node's model before it adds to its message: (N_layer,)."""
    network, noise = current.network, current.mechanism.noise
    drawn = [np.hypot(*of_layer) for of_layer in zip(noise.heads, noise.messages, strict=True)]
    for at, broadcast in enumerate(noise.broadcasts):
        drawn[at] = np.hypot(drawn[at], broadcast)
    drawn[layer] = noise.heads[layer]
    if layer == network.tree.depth:
        return drawn[layer] ** 2
    drawn[layer] = np.hypot(drawn[layer], noise.broadcasts[layer])
    below_node = mean_variances(network, drawn, np.ones(network.tree.n_devices))[layer]
    return drawn[layer] ** 2 + below_node
