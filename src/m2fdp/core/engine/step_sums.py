"""What each local step of a round adds up: whose gradients, behind how much noise.

Lock-step groups below a node that reads only the sum of what its members send add up their
gradients, and their parts of shared noise, at every local step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.noise import add_noise
from m2fdp.core.engine.server_sums import weighed_sum
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.tree import Tree
from m2fdp.secure_aggregation.masked_sums import (
    Messages,
    Spread,
    masked_sums,
    noise_bound,
    step_bound,
)
from m2fdp.secure_aggregation.survivors import devices_in, draw_survivors


@dataclass(frozen=True, eq=False)
class StepSums:
    """One local step.

    Attributes:
        present: bool (N_L,), who takes part in the round.
        devices: bool (N_L,), whose gradients count.
        members: {layer l of sums: bool (N_l,), who is in them}; empty where no step ends in a
            sum.
        noise: float64 (G,), the deviation of each lock-step group's noise, in units of eta.
    """

    present: np.ndarray
    devices: np.ndarray
    members: dict[int, np.ndarray]
    noise: np.ndarray


def step_sums(
    simulation: Simulation, plan: RoundPlan, present: np.ndarray, number: int
) -> tuple[StepSums, ...]:
    """The local steps k = 1…K of round t = `number`.

    Args:
        present: bool (N_L,), the devices that take part in it.

    Raises:
        LostSumError: see `draw_survivors`.
    """
    network, mechanism = simulation.networks[plan.network], simulation.mechanisms[plan.network]
    if not step_in_sums(network, mechanism):
        step = StepSums(present, present, {}, mechanism.noise.steps)
        return (step,) * len(plan.layers)

    def drawn(step: int) -> StepSums:
        streams, rules = simulation.randomness.sampling, simulation.sums
        alive = draw_survivors(network, present, streams, rules, (number, step))
        devices = present & devices_in(network, alive)
        return StepSums(present, devices, alive, _noise(network, mechanism, devices, alive))

    if network.sums.dropout:
        return tuple(drawn(step) for step in range(1, len(plan.layers) + 1))
    return (drawn(1),) * len(plan.layers)


def steps_by_device(simulation: Simulation, network: Network, mechanism: Protection) -> bool:
    """Whether every device of a lock-step group has a gradient of its own: it masks what it sends,
    splits its model, or is a device of its own."""
    masked = simulation.sums.masks and step_in_sums(network, mechanism)
    return masked or simulation.splits is not None or simulation.sums.by_device


def step_in_sums(network: Network, mechanism: Protection) -> bool:
    """Whether groups below a reader of sums move in lock step."""
    drawn, nodes = mechanism.noise.heads, mechanism.lock_step.nodes
    in_lock_step = (drawn[layer][index] == 0 for layer, index in nodes)
    return network.sums.shared and any(of_layer.any() for of_layer in drawn) and any(in_lock_step)


def added_up(tree: Tree, vectors: Tensor, top: int) -> Tensor:
    """What devices send, (N_L, M), as servers add it up on its way to a layer: (N_top, M)."""
    for layer in range(tree.depth, top, -1):
        sums = vectors.new_zeros(tree.n_nodes(layer - 1), vectors.shape[1])
        parents = torch.as_tensor(tree.parents[layer - 1], device=vectors.device)
        weighed_sum(sums, vectors, parents=parents)
        vectors = sums
    return vectors


def _noise(
    network: Network,
    mechanism: Protection,
    devices: np.ndarray,
    alive: dict[int, np.ndarray],
) -> np.ndarray:
    """Each group's noise: of those heads that are in its sum."""
    drawn = [of_layer.copy() for of_layer in mechanism.noise.heads]
    for layer, members in alive.items():
        drawn[layer][~members] = 0.0
    variances = mean_variances(network, drawn, devices)
    return np.sqrt(
        [
            (variances[layer][index] if layer < network.tree.depth else 0.0)
            + drawn[layer][index] ** 2
            for layer, index in mechanism.lock_step.nodes
        ]
    )


def summed_step(
    simulation: Simulation,
    which: int,
    current: StepSums,
    vectors: Tensor | None,
    at: tuple[int, int],
    heads: tuple[int, np.ndarray],
) -> Tensor:
    """What groups below readers of a layer add up in one local step, as it gets there: (N_top, M),
    over eta. Every head draws its own noise; under `protocol: masks` nothing else is ever read.

    Args:
        which: number of one of the simulation's networks.
        vectors: (N_L, M), what each device adds, weighed by what it counts with at the reader;
            None = nothing: then only the noise is added up.
        at: round and step.
        heads: the groups' layer and nodes in it.
    """
    top, nodes = heads
    network, mechanism = simulation.networks[which], simulation.mechanisms[which]
    tree, n_parameters = network.tree, simulation.model.n_parameters
    features, masks = simulation.shards.features, simulation.sums.masks and vectors is not None
    if vectors is None:
        vectors = features.new_zeros(tree.n_devices, n_parameters)
    weights = mechanism.lock_step.weights
    bounds = weights * step_bound(mechanism.clipping, simulation.shards.rates)
    held = np.zeros(tree.n_devices)

    def drawn(layer: int) -> tuple[np.ndarray, np.ndarray, Tensor]:
        """Who is in the sum, the deviations that heads of a layer add to it, and their noise."""
        members = current.members.get(layer, np.ones(tree.n_nodes(layer), dtype=bool))
        if layer == tree.depth:
            members = members & current.devices
        deviations = mechanism.noise.heads[layer] * network.shares(layer, top) * members
        rows = np.flatnonzero(deviations)
        noise = features.new_zeros(len(members), n_parameters)
        stream = simulation.randomness.noise.generator("step-noise", *at, layer)
        add_noise(noise, rows, deviations[rows], stream, rows)
        return members, deviations, noise

    for layer in range(tree.depth, top, -1):
        members, deviations, noise = drawn(layer)
        if masks and layer in current.members and network.sums.reader_layer(layer) >= top:
            messages = Messages(vectors, noise, Spread(bounds, deviations, held))
            present = np.isin(tree.ancestors_of(layer, top), nodes)
            if layer == tree.depth:
                present = present & current.present
            label = simulation.sums.label(*at)
            vectors = masked_sums(network, layer, messages, present, members, label)
            if network.sums.reader_layer(layer) != layer - 1:
                # Servers between add their noise to what they can't read.
                for middle in range(layer - 1, top, -1):
                    ancestors = torch.as_tensor(
                        tree.ancestors_of(middle, top), device=features.device
                    )
                    vectors.index_add_(0, ancestors, drawn(middle)[2])
                break
        else:
            parents = torch.as_tensor(tree.parents[layer - 1], device=vectors.device)
            sent = vectors + noise
            vectors = sent.new_zeros(tree.n_nodes(layer - 1), n_parameters)
            vectors.index_add_(0, parents, sent)
        member_bounds = bounds + noise_bound(deviations, n_parameters)
        bounds = np.bincount(tree.parents[layer - 1], weights=member_bounds)
        held = np.sqrt(np.bincount(tree.parents[layer - 1], weights=held**2 + deviations**2))
    return vectors + drawn(top)[2]  # of those who are heads themselves
