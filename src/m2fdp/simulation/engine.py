"""The round loop: J Algorithm 1 on any tree, with noise where the plan says.

The state between rounds is the global model and the number of finished rounds. Within a round
it is one matrix, a row of parameters a device. Algorithms differ by network, mechanism and
schedule, never by code here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m2fdp.models.registry import Model
from m2fdp.privacy.mechanisms import Mechanism
from m2fdp.simulation.aggregation import Aggregator, Tap, build_aggregator
from m2fdp.simulation.backends import Backend, Minibatches, build_backend, clip_factor
from m2fdp.simulation.sampling import Draw, draw_participants, poisson_draw
from m2fdp.simulation.schedule import Schedule
from m2fdp.streams import torch_generator
from m2fdp.topology.network import Network


@dataclass(frozen=True, eq=False)
class Shards:
    """The devices' training records on the compute device.

    Attributes:
        features: (R, C, H, W), all records in device order.
        labels: int64 (R,).
        sizes: int64 (N_L,), D_j; their sum is R.
        rates: float64 (N_L,), q_j.
    """

    features: Tensor
    labels: Tensor
    sizes: np.ndarray
    rates: np.ndarray


@dataclass(frozen=True, eq=False)
class Simulation:
    """Everything that determines a run.

    `whole` holds the minibatches where every step uses whole shards, so that they are gathered
    once; it is None elsewhere.
    """

    network: Network
    mechanism: Mechanism
    schedule: Schedule
    model: Model
    shards: Shards
    backend: Backend
    aggregator: Aggregator
    whole: Minibatches | None
    seed: int
    chunk_size: int


@dataclass(frozen=True, eq=False)
class State:
    """After `round` finished rounds the global model is `weights`, (M,)."""

    round: int
    weights: Tensor


def build_simulation(
    network: Network,
    mechanism: Mechanism,
    schedule: Schedule,
    model: Model,
    shards: Shards,
    seed: int,
    backend: str = "auto",
    chunk_size: int = 50,
) -> Simulation:
    """Put the parts of a run together.

    Args:
        backend: `reference`, `stacked` or `auto`; see `m2fdp.simulation.backends`.
        chunk_size: devices stepped at a time; bounds memory and changes no result.
    """
    chosen = build_backend(model, backend)
    return Simulation(
        network,
        mechanism,
        schedule,
        model,
        shards,
        chosen,
        build_aggregator(
            network,
            len(mechanism.lock_step.nodes) < network.tree.n_devices,
            shards.features.dtype,
            shards.features.device,
        ),
        _whole_shards(shards),
        seed,
        -(-chunk_size // chosen.group) * chosen.group,
    )


def initial_state(simulation: Simulation) -> State:
    """w^(1), before the first round."""
    return State(0, simulation.model.initial_vector().to(simulation.shards.features))


def rounds(simulation: Simulation, state: State) -> Iterator[State]:
    """The states after each of the rounds that are left, in order."""
    while state.round < simulation.schedule.rounds:
        state = run_round(simulation, state)
        yield state


def run_round(simulation: Simulation, state: State, tap: Tap | None = None) -> State:
    """Round t of J Alg. 1: K local steps, local aggregations, the global aggregation.

    `tap` sees every message up, and every broadcast down of a local aggregation.
    """
    round_ = state.round + 1
    eta = simulation.schedule.step_size(round_)
    aggregator = simulation.aggregator
    drawn = draw_participants(simulation.network, simulation.seed, round_)
    present = torch.as_tensor(drawn, device=state.weights.device).to(state.weights)[:, None]
    weights = synchronised = aggregator.broadcast(state.weights[None], 0)
    for step in range(1, simulation.schedule.local_steps + 1):
        weights = weights - eta * _step_directions(simulation, weights, present, round_, step)
        layer = simulation.schedule.aggregation_layer(step)
        if layer is not None:
            models = aggregator.aggregate(
                _clipped_updates(simulation, weights, synchronised, eta),
                present,
                layer,
                lambda at, k=step: _message_noise(simulation, eta, round_, k, at),
                tap,
            )
            if layer == 0:
                return State(round_, models[0])
            for node, noise in _broadcast_noise(simulation, eta, round_, step, layer).items():
                models[node] += noise
            if tap is not None:
                tap("down", layer, models)
            weights = synchronised = aggregator.broadcast(models, layer)
    raise AssertionError("the last local step ends in the global aggregation")


def _step_directions(
    simulation: Simulation, weights: Tensor, present: Tensor, round_: int, step: int
) -> Tensor:
    """What each device steps along, (N_L, M): its group's gradient plus the group's noise.

    Devices that are not present add nothing.
    """
    shards, lock_step = simulation.shards, simulation.mechanism.lock_step
    draw = poisson_draw(shards.sizes, shards.rates, simulation.seed, round_, step)
    groups = weights.new_zeros(len(lock_step.nodes), weights.shape[1])
    group_of = torch.as_tensor(lock_step.group_of, device=weights.device)
    omega = torch.as_tensor(lock_step.weights, dtype=weights.dtype, device=weights.device)
    for start in range(0, len(weights), simulation.chunk_size):
        part = slice(start, start + simulation.chunk_size)
        gradients = _device_gradients(simulation, weights, draw, part)
        groups.index_add_(0, group_of[part], gradients * omega[part, None] * present[part])
    for group, scale in enumerate(simulation.mechanism.noise.steps):
        if scale > 0:
            layer, index = lock_step.nodes[group]
            groups[group] += scale * _standard_normal(
                simulation, "noise", round_, step, int(layer), int(index)
            )
    return groups[group_of]


def _device_gradients(simulation: Simulation, weights: Tensor, draw: Draw, part: slice) -> Tensor:
    """The clipped minibatch gradients (n, M) of a chunk of devices (J eq. 6)."""
    shards, clipping = simulation.shards, simulation.mechanism.clipping
    if simulation.whole is None:
        batches = _gather(shards, draw, part)
    else:
        whole = simulation.whole
        batches = Minibatches(whole.features[part], whole.labels[part], whole.mask[part])
    sums = simulation.backend.gradient_sums(
        weights[part], batches, clipping.record_norm, clipping.by_class
    )
    if clipping.divide_by == "expected":
        sizes = shards.rates[part] * shards.sizes[part]
    else:
        sizes = np.maximum(draw.counts[part], 1)
    gradients = sums / torch.as_tensor(sizes, dtype=sums.dtype, device=sums.device)[:, None]
    if clipping.batch_norm is not None:
        gradients *= clip_factor(gradients.norm(dim=1, keepdim=True), clipping.batch_norm)
    return gradients


def _gather(shards: Shards, draw: Draw, part: slice) -> Minibatches:
    device = shards.features.device
    positions = torch.as_tensor(draw.positions[part], device=device)
    mask = torch.as_tensor(draw.mask[part], device=device)
    return Minibatches(shards.features[positions], shards.labels[positions], mask)


def _whole_shards(shards: Shards) -> Minibatches | None:
    """All shards as minibatches, unless steps sample or padding would double the memory."""
    if (shards.rates < 1).any():
        return None
    draw = poisson_draw(shards.sizes, shards.rates, seed=0, round_=0, step=0)
    if draw.mask.size > 2 * len(shards.labels):
        return None
    return _gather(shards, draw, slice(None))


def _clipped_updates(
    simulation: Simulation, weights: Tensor, synchronised: Tensor, eta: float
) -> Tensor:
    """The devices' models with their updates since the last synchronisation clipped."""
    norm = simulation.mechanism.clipping.update_norm
    if norm is None:
        return weights
    updates = weights - synchronised
    return synchronised + updates * clip_factor(updates.norm(dim=1, keepdim=True), eta * norm)


def _message_noise(
    simulation: Simulation, eta: float, round_: int, step: int, layer: int
) -> dict[int, Tensor]:
    scales = simulation.mechanism.noise.messages[layer - 1]
    return _noise_of(simulation, eta * scales, "noise", round_, step, layer)


def _broadcast_noise(
    simulation: Simulation, eta: float, round_: int, step: int, layer: int
) -> dict[int, Tensor]:
    scales = simulation.mechanism.noise.broadcasts[layer]
    return _noise_of(simulation, eta * scales, "downlink-noise", round_, step, layer)


def _noise_of(
    simulation: Simulation, scales: np.ndarray, purpose: str, round_: int, step: int, layer: int
) -> dict[int, Tensor]:
    """Noise (M,) by node, for the nodes of a layer whose standard deviation is not zero."""
    return {
        int(node): float(scales[node])
        * _standard_normal(simulation, purpose, round_, step, layer, int(node))
        for node in np.flatnonzero(scales)
    }


def _standard_normal(
    simulation: Simulation, purpose: str, round_: int, step: int, layer: int, node: int
) -> Tensor:
    """A node's standard normal vector (M,) at one step.

    Nodes are keyed by their height above the devices, so that a device draws the same noise in
    a star as in a deeper tree.
    """
    height = simulation.network.tree.depth - layer
    features = simulation.shards.features
    stream = torch_generator(
        simulation.seed, purpose, round_, step, height, node, device=features.device
    )
    size = simulation.model.n_parameters
    return torch.randn(size, generator=stream, device=features.device).to(features.dtype)
