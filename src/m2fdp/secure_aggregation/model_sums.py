"""Sums of the models that nodes send, by the protocol of secure aggregation (`protocol: masks`)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import References
from m2fdp.core.engine.stretches import Round
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.sums import readers
from m2fdp.secure_aggregation.masked_sums import (
    Messages,
    Spread,
    masked_sums,
    noise_bound,
    step_bound,
)


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
    network = current.network
    top = network.sums.reader_layer(layer)
    weights = torch.as_tensor(network.shares(layer, top)).to(models)[:, None]
    of_node = torch.as_tensor(readers(network.tree, network.sums, layer), device=models.device)
    messages = Messages(
        (models - references.of(top)[of_node]) * weights,
        noise * weights,
        model_spread(
            network,
            current.mechanism,
            current.plan,
            current.simulation.shards.rates,
            layer,
            models.shape[1],
        ),
    )
    alive, present = current.alive[step][layer], _sends(current, layer)
    label = current.simulation.sums.label(current.number, step)
    return masked_sums(network, layer, messages, present, alive & present, label)


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


def model_spread(
    network: Network,
    mechanism: Protection,
    plan: RoundPlan,
    rates: np.ndarray,
    layer: int,
    n_parameters: int,
) -> Spread:
    """How large the updates and the noise that nodes of a layer put in can be, weighed.

    Args:
        rates: float64 (N_L,), q_j.
    """
    steps, eta = len(plan.layers), plan.step_size
    of_device = steps * eta * step_bound(mechanism.clipping, rates)
    weights = network.shares(network.tree.depth, layer) * of_device
    clipped = np.bincount(network.tree.ancestors[layer], weights=weights)
    held = _held(network, mechanism, layer)
    bounds = clipped + noise_bound(eta * np.sqrt(steps * held), n_parameters)
    share = network.shares(layer, network.sums.reader_layer(layer))
    return Spread(
        share * bounds,
        share * eta * mechanism.noise.messages[layer],
        share * eta * np.sqrt(held),
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
