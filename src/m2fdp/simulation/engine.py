"""The round loop: J Algorithm 1 on any tree, with noise where the plan says.

The state between rounds is the global model and the number of finished rounds. Algorithms
differ by network, mechanism and schedule, never by code here.

A round is a few stretches of local steps, each ended by an aggregation. Within a stretch no
learner hears of another, so learners are stepped in tiles that fit the cache, on several
processes, and only sums of models are kept. Models are added in the order of the learners, so no
result depends on the size of tiles or on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.simulation.aggregation import Tap
from m2fdp.simulation.backends import clip_factor, unbounded
from m2fdp.simulation.learners import Cast, draw_cast, draw_minibatches
from m2fdp.simulation.noise import add_noise, summed_deviations
from m2fdp.simulation.records import Minibatches
from m2fdp.simulation.simulation import Simulation, State


@dataclass(frozen=True, eq=False)
class _Held:
    """Where learners start: learner i of a block has the model `models[rows[i]]`."""

    models: Tensor
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Local steps up to an aggregation.

    Attributes:
        eta: the step size.
        first, last: the numbers k of its steps.
        top: the layer that models travel up to afterwards.
        fused: whether noise that only feeds the aggregation's sums is drawn there.
        minibatches: of each step.
    """

    round: int
    eta: float
    first: int
    last: int
    top: int
    fused: bool
    minibatches: tuple[Minibatches, ...]


def rounds(simulation: Simulation, state: State) -> Iterator[State]:
    """The states after each of the rounds that are left, in order."""
    while state.round < simulation.schedule.rounds:
        state = run_round(simulation, state)
        yield state


def run_round(simulation: Simulation, state: State, tap: Tap | None = None) -> State:
    """Round t of J Alg. 1: K local steps, local aggregations, the global aggregation.

    `tap` sees every message up, and every broadcast down of a local aggregation. While somebody
    listens every message has a noise of its own; else noises that only feed a sum are drawn as
    one, so the two rounds are equal in distribution, not to the bit.
    """
    round_ = state.round + 1
    sampling = simulation.randomness.sampling
    cast = draw_cast(simulation.network, simulation.mechanism, sampling, round_)
    held = _broadcast(simulation, cast, state.weights[None], 0, {})
    models = state.weights[None]
    for stretch in _stretches(simulation, cast, round_, fused=tap is None):
        own, models = _run_stretch(simulation, cast, stretch, held, tap)
        if stretch.top > 0:
            broadcasts = simulation.mechanism.noise.broadcasts[stretch.top]
            _add_noise(simulation, stretch, "downlink-noise", stretch.top, broadcasts, models)
            if tap is not None:
                tap("down", stretch.top, models)
        held = _broadcast(simulation, cast, models, stretch.top, own)
    return State(round_, models[0])


def _stretches(simulation: Simulation, cast: Cast, round_: int, fused: bool) -> Iterator[_Stretch]:
    """The round, cut after every aggregation."""
    schedule = simulation.schedule
    minibatches = draw_minibatches(
        cast,
        simulation.mechanism,
        simulation.shards,
        simulation.randomness.sampling,
        round_,
        schedule.local_steps,
    )
    eta, first = schedule.step_size(round_), 1
    for step in range(1, schedule.local_steps + 1):
        top = schedule.aggregation_layer(step)
        if top is not None:
            yield _Stretch(round_, eta, first, step, top, fused, minibatches[first - 1 : step])
            first = step + 1


def _broadcast(
    simulation: Simulation, cast: Cast, models: Tensor, layer: int, own: dict[int, Tensor]
) -> dict[int, _Held]:
    """Learners below a layer take the model of their ancestor there; the others keep their own.

    Args:
        models: (N_l, M), of that layer.
        own: (n, M), of the learners of a block, by head layer.
    """
    ancestors = simulation.network.tree.ancestors[layer][cast.first_devices]
    return {
        head_layer: _Held(models, ancestors[block.start : block.stop])
        if head_layer > layer
        else _Held(own[head_layer], np.arange(len(block)))
        for head_layer, block in cast.blocks.items()
    }


def _run_stretch(
    simulation: Simulation,
    cast: Cast,
    stretch: _Stretch,
    held: dict[int, _Held],
    tap: Tap | None,
) -> tuple[dict[int, Tensor], Tensor]:
    """Step all learners, then aggregate.

    Returns:
        The models of the learners that the aggregation did not reach, by head layer, and the
        models (N_top, M) that it ends in.
    """
    aggregator, devices = simulation.aggregator, simulation.network.tree.depth
    sums = aggregator.nothing_received(stretch.top, simulation.model.n_parameters)
    own: dict[int, Tensor] = {}
    for head_layer, block in cast.blocks.items():
        stepped = _stepped(simulation, cast, stretch, block, held[head_layer])
        if head_layer <= stretch.top:
            own[head_layer] = torch.cat([models.clone() for _, models in stepped])
        elif head_layer < devices:
            for learners, models in stepped:
                sums[head_layer][_heads(cast, learners, models)] = models
        elif tap is None:
            for learners, models in stepped:
                aggregator.receive(sums, devices, _heads(cast, learners, models), models)
        else:
            sent = sums[stretch.top].new_zeros(len(cast.present), simulation.model.n_parameters)
            for learners, models in stepped:
                sent[_heads(cast, learners, models)] = models
            _add_message_noise(simulation, cast, stretch, devices, sent)
            tap("up", devices, sent)
            heads = _heads(cast, block, sent)
            aggregator.receive(sums, devices, heads, sent[heads])
    if tap is not None:
        add_noise = partial(_add_message_noise, simulation, cast, stretch)
        return own, aggregator.climb(sums, stretch.top, add_noise, tap)
    models = aggregator.climb(sums, stretch.top)
    if simulation.mechanism.private:
        _add_summed_noise(simulation, cast, stretch, models)
    return own, models


def _heads(cast: Cast, learners: range, like: Tensor) -> Tensor:
    """The indices, within their layer, of the heads of some learners of one block."""
    return torch.as_tensor(cast.heads[learners.start : learners.stop, 1], device=like.device)


def _stepped(
    simulation: Simulation, cast: Cast, stretch: _Stretch, block: range, held: _Held
) -> Iterator[tuple[range, Tensor]]:
    """The learners of a block after the stretch, so many (n, M) at a time, in order.

    The next ones overwrite those before.
    """
    results = simulation.results

    def work(part: range) -> None:
        for start in range(part.start, part.stop, simulation.tile):
            tile = wave[start : min(start + simulation.tile, part.stop)]
            rows = held.rows[tile.start - block.start : tile.stop - block.start]
            models = results[start : start + len(tile)]
            places = torch.as_tensor(rows, device=held.models.device)
            torch.index_select(held.models, 0, places, out=models)
            _step_tile(simulation, cast, stretch, tile, models)

    steps = stretch.last - stretch.first + 1
    for start in range(0, len(block), len(results)):
        wave = block[start : start + len(results)]
        group = simulation.backend.group
        simulation.workers.share(f"{steps} steps", len(wave), work, group)
        yield wave, results[: len(wave)]


def _step_tile(
    simulation: Simulation, cast: Cast, stretch: _Stretch, tile: range, models: Tensor
) -> None:
    """Take the models (n, M) of some learners through the steps of a stretch, in place."""
    clipping = simulation.mechanism.clipping
    learners = slice(tile.start, tile.stop)
    (layer, *_), nodes = cast.heads[learners].T
    scales = simulation.mechanism.noise.steps[cast.groups[learners]]
    # What is left for the last step: the aggregation above draws the others' noise as one.
    at_last = scales if not stretch.fused or layer <= stretch.top else np.zeros_like(scales)
    start = models.clone() if clipping.update_norm is not None else None
    for step, minibatches in enumerate(stretch.minibatches, start=stretch.first):
        _descend(simulation, cast, stretch.eta, tile, minibatches, models)
        due = at_last if step == stretch.last else scales
        _add_noise(simulation, stretch, "step-noise", int(layer), due, models, nodes, step)
    if start is not None:
        updates = models - start
        torch.add(start, _clip(updates, stretch.eta * clipping.update_norm), out=models)


def _descend(
    simulation: Simulation,
    cast: Cast,
    eta: float,
    tile: range,
    minibatches: Minibatches,
    models: Tensor,
) -> None:
    """One clipped gradient step (J eq. 6) of some learners, in place."""
    clipping = simulation.mechanism.clipping
    units = cast.units_of(tile)
    batches = minibatches.select(units)
    record_clip = (clipping.record_norm, clipping.by_class)
    if clipping.batch_norm is None:
        simulation.backend.add_gradients(models, -eta, models, batches, *record_clip)
        return
    learners = torch.as_tensor(cast.learner_of_unit[units] - tile.start, device=models.device)
    own_models = models[learners]
    gradients = torch.zeros_like(own_models)
    simulation.backend.add_gradients(gradients, 1.0, own_models, batches, *record_clip)
    _clip(gradients, clipping.batch_norm)
    gradients *= torch.as_tensor(cast.shares[units], device=models.device).to(models.dtype)[:, None]
    models.index_add_(0, learners, gradients, alpha=-eta)


def _clip(vectors: Tensor, norm: float) -> Tensor:
    """The vectors (n, M), each clipped to a norm, or zero if nothing bounds it: in place."""
    norms = vectors.norm(dim=1, keepdim=True)
    lost = unbounded(norms, norm)
    if lost is not None:
        vectors.masked_fill_(lost, 0.0)
        norms.masked_fill_(lost, 0.0)
    return vectors.mul_(clip_factor(norms, norm))


def _add_message_noise(
    simulation: Simulation, cast: Cast, stretch: _Stretch, layer: int, messages: Tensor
) -> None:
    """Noise those of the messages (N_l, M) of a layer that carry some, in place."""
    scales = simulation.mechanism.noise.messages[layer]
    if layer == simulation.network.tree.depth:
        scales = scales * cast.present
    _add_noise(simulation, stretch, "message-noise", layer, scales, messages)


def _add_summed_noise(
    simulation: Simulation, cast: Cast, stretch: _Stretch, models: Tensor
) -> None:
    """Draw all noise of the last step and of the messages below each model as one."""
    noise, lock_step = simulation.mechanism.noise, simulation.mechanism.lock_step
    deviations = [scales.copy() for scales in noise.messages]
    for layer in range(stretch.top + 1, len(deviations)):
        here = lock_step.nodes[:, 0] == layer
        nodes = lock_step.nodes[here, 1]
        own = deviations[layer]
        own[nodes] = np.hypot(own[nodes], noise.steps[here])
    summed = summed_deviations(simulation.network, cast.present, deviations, stretch.top)
    _add_noise(simulation, stretch, "summed-noise", stretch.top, summed, models)


def _add_noise(
    simulation: Simulation,
    stretch: _Stretch,
    purpose: str,
    layer: int,
    scales: np.ndarray,
    models: Tensor,
    nodes: np.ndarray | None = None,
    step: int | None = None,
) -> None:
    """Add independent Gaussian noise to models (n, M), in place.

    Args:
        scales: float64 (n,), its standard deviations, in units of eta.
        nodes: int64 (n,), the nodes of the layer that draw it; all of them, unless given.
        step: when; the last of the stretch, unless given.
    """
    rows = np.flatnonzero(scales)
    if not len(rows):
        return
    step = stretch.last if step is None else step
    stream = simulation.randomness.noise.generator(purpose, stretch.round, step, layer)
    nodes = rows if nodes is None else nodes[rows]
    add_noise(models, rows, stretch.eta * scales[rows], stream, nodes)
