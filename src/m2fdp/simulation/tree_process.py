"""The tree process: J Algorithm 1 on any tree, with noise where the plan says.

Algorithms differ by network, mechanism, rules and schedule, never by code here.

A round is a few stretches of local steps, each ended by an aggregation. Within a stretch no
learner hears of another, so learners are stepped in tiles that fit the cache, on several
processes, and only sums of models are kept. Models are added in the order of the learners, so no
result depends on the size of tiles or on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.aggregation import (
    Aggregator,
    References,
    Updates,
    all_missing,
    build_aggregator,
    first_references,
)
from m2fdp.simulation.clipping import clip_layers
from m2fdp.simulation.executor import ExecutionSettings, Executor, build_executor
from m2fdp.simulation.learners import Learners, draw_learners, draw_minibatches
from m2fdp.simulation.local_rules import LocalRule, ProximalStep
from m2fdp.simulation.masked_sums import Senders
from m2fdp.simulation.minibatches import Minibatches
from m2fdp.simulation.noise import add_noise, summed_deviations
from m2fdp.simulation.process import State, Tap
from m2fdp.simulation.simulation import Simulation
from m2fdp.simulation.starts import Starts, first_starts, next_starts
from m2fdp.simulation.step_sums import StepSums, step_sums, steps_by_device, summed_step
from m2fdp.simulation.survivors import draw_survivors
from m2fdp.topology.network import Network


@dataclass(frozen=True, eq=False)
class TreeProcess:
    """The rounds of a simulation (a `Process`)."""

    simulation: Simulation
    executor: Executor

    def start(self) -> State:
        """w^(1), with what the server rule begins with."""
        weights = self.simulation.model.initial_vector().to(self.simulation.shards.features)
        return State(0, weights, self.simulation.rules.server.start(weights))

    def round(self, state: State, plan: RoundPlan, tap: Tap | None = None) -> State:
        """One round of J Alg. 1: K local steps, local aggregations, the global aggregation.

        `tap` sees every message up, and every broadcast down of a local aggregation. While
        somebody listens every message has a noise of its own; else noises that only feed a sum
        are drawn as one, so the two rounds are equal in distribution, not to the bit.
        """
        current = _begin(self, plan, state.round + 1, tap)
        starts = first_starts(current.learners, state.weights)
        references = first_references(current.network.tree, state.weights)
        for stretch in _stretches(current):
            own, models = _run_stretch(current, stretch, starts, references)
            if stretch.top > 0:
                broadcasts = current.mechanism.noise.broadcasts[stretch.top]
                _add_noise(current, stretch.last, "downlink-noise", stretch.top, broadcasts, models)
                if tap is not None:
                    tap("down", stretch.top, models)
            tree, top = current.network.tree, stretch.top
            starts = next_starts(starts, current.learners, tree, models, top, own)
            references = references.after(stretch.top, models)
        cloud = current.mechanism.noise.messages[0]
        _add_noise(current, len(plan.layers), "cloud-noise", 0, cloud, models)
        server = self.simulation.rules.server
        return State(current.number, *server.step(state.weights, models[0], state.slots))


def build_process(simulation: Simulation, settings: ExecutionSettings | None = None) -> TreeProcess:
    """The rounds of a simulation, with the means to run them."""
    return TreeProcess(simulation, build_executor(simulation, settings or ExecutionSettings()))


@dataclass(frozen=True, eq=False)
class _Round:
    """Round t = `number`: what is planned, and who takes part.

    Attributes:
        network: with the weights that those have who take part.
        aggregator, weighing: with those of what is added up as it is.
        missing: see `Updates`; None where all weights sum to one, and models are aggregated.
    """

    number: int
    plan: RoundPlan
    simulation: Simulation
    executor: Executor
    network: Network
    mechanism: CalibratedMechanism
    aggregator: Aggregator
    learners: Learners
    steps: tuple[StepSums, ...]
    missing: tuple[Tensor | None, ...] | None
    tap: Tap | None
    weighing: Network
    alive: Mapping[int, np.ndarray] = field(default_factory=dict)

    @property
    def local(self) -> LocalRule:
        """One local step: the algorithm's, with the proximal term that is planned."""
        rule, mu = self.simulation.rules.local, self.plan.proximal
        return ProximalStep(mu, rule) if mu else rule

    @property
    def masked(self) -> bool:
        """Whether the protocol of secure aggregation is run."""
        return self.simulation.sums.masks

    @property
    def separate(self) -> bool:
        """Whether every message has a noise of its own; else those that only feed a sum are one."""
        return self.tap is not None or self.masked


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Local steps up to an aggregation.

    Attributes:
        first, last: the numbers k of its steps.
        top: the layer that models travel up to afterwards.
        minibatches: of each step.
    """

    first: int
    last: int
    top: int
    minibatches: tuple[Minibatches, ...]


def _begin(process: TreeProcess, plan: RoundPlan, number: int, tap: Tap | None) -> _Round:
    simulation, executor = process.simulation, process.executor
    network = simulation.networks[plan.network]
    mechanism = simulation.mechanisms[plan.network]
    streams = simulation.randomness.sampling
    by_device = steps_by_device(simulation, network, mechanism)
    learners = draw_learners(network, mechanism, streams, number, by_device)
    present, like = learners.present, simulation.shards.features
    aggregator, missing = executor.aggregators[plan.network], None
    if network.participation is not None:
        network = network.among(present)
        aggregator = build_aggregator(network, like.dtype, like.device)
        missing = all_missing(network, mechanism.lock_step, present, {network.tree.depth}, like)
    return _Round(
        number,
        plan,
        simulation,
        executor,
        network,
        mechanism,
        aggregator,
        learners,
        step_sums(simulation, plan, learners, number),
        missing,
        tap,
        network,
    )


def _before_sums(current: _Round, stretch: _Stretch) -> _Round:
    """The round as the aggregation after a stretch finds it: of those who are summed some fell
    silent, or all bring what they send by the protocol instead."""
    network, present = current.network, current.learners.present
    if not network.sums.layers or not (network.sums.dropout or current.masked):
        return current
    simulation, like = current.simulation, current.simulation.shards.features
    streams, at = simulation.randomness.sampling, (current.number, stretch.last)
    alive = draw_survivors(network, present, streams, simulation.sums, at)
    by_protocol = {layer: np.zeros_like(members) for layer, members in alive.items()}
    left = network.without(by_protocol if current.masked else alive)
    by_chance = {network.tree.depth} if current.missing is not None else set[int]()
    layers = by_chance | set(network.sums.layers)
    return replace(
        current,
        aggregator=build_aggregator(left, like.dtype, like.device),
        missing=all_missing(left, current.mechanism.lock_step, present, layers, like),
        weighing=left,
        alive=alive,
    )


def _stretches(current: _Round) -> Iterator[_Stretch]:
    """The round, cut after every aggregation."""
    layers = current.plan.layers
    minibatches = draw_minibatches(
        current.learners,
        current.mechanism,
        current.simulation.shards,
        current.simulation.randomness.sampling,
        current.number,
        [sums.devices for sums in current.steps],
    )
    first = 1
    for step, top in enumerate(layers, start=1):
        if top is not None:
            yield _Stretch(first, step, top, minibatches[first - 1 : step])
            first = step + 1


def _run_stretch(
    current: _Round, stretch: _Stretch, starts: dict[int, Starts], references: References
) -> tuple[dict[int, Tensor], Tensor]:
    """Step all learners, then aggregate.

    Returns:
        The models of the learners that the aggregation did not reach, by head layer, and the
        models (N_top, M) that it ends in. Where the cloud is the head of all devices, its model is
        what a global aggregation ends in.
    """
    current = _before_sums(current, stretch)
    aggregator, devices = current.aggregator, current.network.tree.depth
    learners, n_parameters = current.learners, current.simulation.model.n_parameters
    updates = None if current.missing is None else Updates(references, current.missing)
    send = partial(_send, current, stretch, updates)
    sums = aggregator.nothing_received(stretch.top, n_parameters)
    own: dict[int, Tensor] = {}
    for head_layer, block in learners.blocks.items():
        stepped = _stepped(current, stretch, block, starts[head_layer])
        if head_layer <= stretch.top:
            own[head_layer] = torch.cat([models.clone() for _, models in stepped])
        elif head_layer < devices:
            for part, models in stepped:
                sums[head_layer][_heads(learners, part, models)] = models
        elif not current.separate:
            for part, models in stepped:
                aggregator.receive(sums, devices, _heads(learners, part, models), models)
        else:
            sent = sums[stretch.top].new_zeros(len(learners.present), n_parameters)
            for part, models in stepped:
                sent[_heads(learners, part, models)] = models
            send(devices, sent)
            heads = _heads(learners, block, sent)
            aggregator.receive(sums, devices, heads, sent[heads])
    if current.separate:
        models = aggregator.climb(sums, stretch.top, send, updates)
    else:
        models = aggregator.climb(sums, stretch.top, updates=updates)
        if current.mechanism.private:
            _add_summed_noise(current, stretch, models)
    return own, own.get(0, models) if stretch.top == 0 else models


def _send(
    current: _Round, stretch: _Stretch, updates: Updates | None, layer: int, messages: Tensor
) -> None:
    """Noise what nodes of a layer send, (N_l, M), in place; masked or open, somebody gets it."""
    noise, scales = torch.zeros_like(messages), current.mechanism.noise.sent(stretch.top)[layer]
    scales = scales * (layer < current.network.tree.depth or current.learners.present)
    _add_noise(current, stretch.last, "message-noise", layer, scales, noise)
    if current.masked and updates is not None and layer in current.alive:
        senders = Senders(
            current.network,
            current.mechanism,
            current.learners.present,
            current.alive,
            updates.references,
            current.simulation.shards.rates,
            len(current.plan.layers),
            current.plan.step_size,
            f"round {current.number}, step {stretch.last}",
        )
        reader_layer = current.network.sums.reader_layer(layer)
        updates.arrived[reader_layer] = senders.bring(layer, messages, noise)
    messages.add_(noise)
    if current.tap is not None:
        current.tap("up", layer, messages)


def _heads(learners: Learners, part: range, like: Tensor) -> Tensor:
    """The indices, within their layer, of the heads of some learners of one block."""
    return torch.as_tensor(learners.heads[part.start : part.stop, 1], device=like.device)


def _stepped(
    current: _Round, stretch: _Stretch, block: range, starts: Starts
) -> Iterator[tuple[range, Tensor]]:
    """The learners of a block after the stretch, so many (n, M) at a time, in order.

    The next ones overwrite those before.
    """
    executor = current.executor
    results, tile_size = executor.results, executor.tile
    center = current.plan.center if current.plan.proximal else "received"

    def work(part: range) -> None:
        for start in range(part.start, part.stop, tile_size):
            tile = wave[start : min(start + tile_size, part.stop)]
            inside = slice(tile.start - block.start, tile.stop - block.start)
            models = starts.own.of(inside, out=results[start : start + len(tile)])
            anchors = starts.anchors(center).of(inside) if current.local.anchored else None
            _step_tile(current, stretch, tile, models, anchors)

    steps = stretch.last - stretch.first + 1
    for start in range(0, len(block), len(results)):
        wave = block[start : start + len(results)]
        executor.workers.share(f"{steps} steps", len(wave), work, executor.backend.group)
        yield wave, results[: len(wave)]


def _step_tile(
    current: _Round, stretch: _Stretch, tile: range, models: Tensor, anchors: Tensor | None
) -> None:
    """Take the models (n, M) of some learners through the steps of a stretch, in place."""
    learners, eta = current.learners, current.plan.step_size
    local, update_norm = current.local, current.mechanism.clipping.update_norm
    part = slice(tile.start, tile.stop)
    (layer, *_), nodes = learners.heads[part].T
    groups = learners.groups[part]
    # What is left for the last step: the aggregation above draws the others' noise as one.
    separate = current.separate or layer <= stretch.top
    start = models.clone() if update_norm is not None else None
    together = current.separate and bool(current.steps[0].members)
    for step, minibatches in enumerate(stretch.minibatches, start=stretch.first):
        descend = partial(_descend, current, tile, step, minibatches)
        local.step(models, anchors, eta, descend)
        if together and not current.masked:
            noise = _summed_step(current, step, None, (int(layer), nodes))
            models.add_(noise[torch.as_tensor(nodes, device=models.device)], alpha=eta)
        elif not together and (separate or step < stretch.last):
            scales = current.steps[step - 1].noise[groups]
            _add_noise(current, step, "step-noise", int(layer), scales, models, nodes)
    if update_norm is not None and start is not None:
        updates = _clipped(current, models - start, eta * update_norm)
        torch.add(start, updates, out=models)
    if current.mechanism.clipping.model_norm is not None:
        _clipped(current, models, current.mechanism.clipping.model_norm)


def _clipped(current: _Round, vectors: Tensor, norm: float) -> Tensor:
    """Gradients or updates of devices (n, M), each clipped to a norm, in place."""
    layers = current.simulation.model.layers if current.mechanism.clipping.by_layer else None
    return clip_layers(vectors, norm, current.simulation.rules.clip_factor, layers)


def _summed_step(
    current: _Round, step: int, vectors: Tensor | None, heads: tuple[int, np.ndarray]
) -> Tensor:
    simulation, at = current.simulation, (current.number, step)
    which = current.plan.network
    return summed_step(simulation, which, current.steps[step - 1], vectors, at, heads)


def _descend(
    current: _Round, tile: range, step: int, minibatches: Minibatches, models: Tensor
) -> None:
    """One clipped gradient step (J eq. 6) of some learners, in place."""
    if (splitter := current.executor.splitter) is not None:
        return splitter.descend(current, tile, step, minibatches, models)
    learners, clipping = current.learners, current.mechanism.clipping
    backend, eta = current.executor.backend, current.plan.step_size
    units = learners.units_of(tile)
    batches = minibatches.select(units)
    record_clip = (clipping.record_norm, clipping.by_class)
    masked = current.masked and bool(current.steps[0].members)
    if clipping.batch_norm is None and not masked:
        backend.add_gradients(models, -eta, models, batches, *record_clip)
        return
    owners = torch.as_tensor(learners.learner_of_unit[units] - tile.start, device=models.device)
    own_models = models[owners]
    gradients = torch.zeros_like(own_models)
    backend.add_gradients(gradients, 1.0, own_models, batches, *record_clip)
    if clipping.batch_norm is not None:
        _clipped(current, gradients, clipping.batch_norm)
    shares = torch.as_tensor(learners.shares[units], device=models.device)
    gradients *= shares.to(models.dtype)[:, None]
    if masked:
        (layer, *_), nodes = learners.heads[tile.start : tile.stop].T
        vectors = models.new_zeros(len(learners.present), models.shape[1])
        devices = torch.as_tensor(learners.device_of_unit[units], device=models.device)
        vectors[devices] = -gradients
        summed = _summed_step(current, step, vectors, (int(layer), nodes))
        models.add_(summed[torch.as_tensor(nodes, device=models.device)], alpha=eta)
        return
    models.index_add_(0, owners, gradients, alpha=-eta)


def _add_summed_noise(current: _Round, stretch: _Stretch, models: Tensor) -> None:
    """Draw all noise of the last step and of the messages below each model as one."""
    noise, lock_step = current.mechanism.noise, current.mechanism.lock_step
    steps = current.steps[stretch.last - 1].noise
    deviations = [scales.copy() for scales in noise.sent(stretch.top)]
    for layer in range(stretch.top + 1, len(deviations)):
        here = lock_step.nodes[:, 0] == layer
        nodes = lock_step.nodes[here, 1]
        own = deviations[layer]
        own[nodes] = np.hypot(own[nodes], steps[here])
    present = current.learners.present
    summed = summed_deviations(current.weighing, present, deviations, stretch.top)
    _add_noise(current, stretch.last, "summed-noise", stretch.top, summed, models)


def _add_noise(
    current: _Round,
    step: int,
    purpose: str,
    layer: int,
    scales: np.ndarray,
    models: Tensor,
    nodes: np.ndarray | None = None,
) -> None:
    """Add independent Gaussian noise to models (n, M), in place.

    Args:
        step: when.
        scales: float64 (n,), its standard deviations, in the unit of the mechanism's noise.
        nodes: int64 (n,), the nodes of the layer that draw it; all of them, unless given.
    """
    rows = np.flatnonzero(scales)
    if not len(rows):
        return
    stream = current.simulation.randomness.noise.generator(purpose, current.number, step, layer)
    nodes = rows if nodes is None else nodes[rows]
    unit = current.mechanism.noise.scale(current.plan.step_size)
    add_noise(models, rows, unit * scales[rows], stream, nodes)
