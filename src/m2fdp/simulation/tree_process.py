"""The tree process: J Algorithm 1 on any tree, with noise where the plan says.

Algorithms differ by network, mechanism, rules and schedule, never by code here.

A round is a few stretches of local steps, each ended by an aggregation. Models are added in the
order of the learners, so no result depends on the size of tiles or on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.aggregation import (
    References,
    Updates,
    build_aggregator,
    shortfalls,
)
from m2fdp.simulation.executor import ExecutionSettings, Executor, build_executor
from m2fdp.simulation.learners import Learners, draw_learners, draw_minibatches
from m2fdp.simulation.model_sums import model_sums
from m2fdp.simulation.noise import summed_deviations
from m2fdp.simulation.process import Slots, State, Tap
from m2fdp.simulation.simulation import Simulation
from m2fdp.simulation.slots import slots_after, slots_in_use
from m2fdp.simulation.starts import Starts, first_starts, next_starts
from m2fdp.simulation.step_sums import step_sums, steps_by_device
from m2fdp.simulation.stretches import Round, Stretch, add_round_noise, stepped
from m2fdp.simulation.survivors import draw_survivors


@dataclass(frozen=True, eq=False)
class TreeProcess:
    """The rounds of a simulation (a `Process`)."""

    simulation: Simulation
    executor: Executor

    def start(self) -> State:
        """w^(1), with what the server rule begins with."""
        weights = self.simulation.model.initial_vector().to(self.simulation.shards.features)
        return State(0, weights, Slots(self.simulation.rules.server.start(weights)))

    def round(self, state: State, plan: RoundPlan, tap: Tap | None = None) -> State:
        """One round of J Alg. 1: K local steps, local aggregations, the global aggregation.

        `tap` sees every message up, and every broadcast down of a local aggregation. While
        somebody listens every message has a noise of its own; else noises that only feed a sum
        are drawn as one, so the two rounds are equal in distribution, not to the bit.
        """
        current = _begin(self, plan, state, tap)
        starts = first_starts(current.learners, state.weights)
        tree = current.network.tree
        references = References(tree, ((0, state.weights[None]),) * tree.depth)
        for stretch in _stretches(current):
            unreached, models = _run_stretch(current, stretch, starts, references)
            if stretch.top > 0:
                broadcasts = current.mechanism.noise.broadcasts[stretch.top]
                at = current, stretch.last
                add_round_noise(*at, "downlink-noise", stretch.top, broadcasts, models)
                if tap is not None:
                    tap("down", stretch.top, models)
            starts = next_starts(starts, current.learners, tree, models, stretch.top, unreached)
            references = references.after(stretch.top, models)
        cloud = current.mechanism.noise.messages[0]
        add_round_noise(current, len(plan.layers), "cloud-noise", 0, cloud, models)
        slots = slots_after(current, state.slots)
        weights, server = self.simulation.rules.server.step(state.weights, models[0], slots.server)
        return State(current.number, weights, replace(slots, server=server))


def build_process(simulation: Simulation, settings: ExecutionSettings | None = None) -> TreeProcess:
    """The rounds of a simulation, with the means to run them."""
    return TreeProcess(simulation, build_executor(simulation, settings or ExecutionSettings()))


def _begin(process: TreeProcess, plan: RoundPlan, state: State, tap: Tap | None) -> Round:
    simulation, executor, number = process.simulation, process.executor, state.round + 1
    network = simulation.networks[plan.network]
    mechanism = simulation.mechanisms[plan.network]
    streams = simulation.randomness.sampling
    by_device = steps_by_device(simulation, network, mechanism)
    learners = draw_learners(network, mechanism, streams, number, by_device)
    present, features = learners.present, simulation.shards.features
    aggregator, lacking = executor.aggregators[plan.network], None
    if network.participation is not None:
        network = network.among(present)
        aggregator = build_aggregator(network, features)
        lacking = shortfalls(network, mechanism.lock_step, present, {network.tree.depth}, features)
    return Round(
        number,
        plan,
        simulation,
        executor,
        network,
        mechanism,
        aggregator,
        learners,
        step_sums(simulation, plan, learners, number),
        lacking,
        tap,
        network,
        slots=slots_in_use(simulation, executor.workers, state),
        received=state.slots.server,
    )


def _before_sums(current: Round, stretch: Stretch) -> Round:
    """The round as the aggregation after a stretch finds it: of those who are summed some fell
    silent, or all bring what they send by the protocol instead."""
    network, present = current.network, current.learners.present
    if not network.sums.layers or not (network.sums.dropout or current.masked):
        return current
    simulation, features = current.simulation, current.simulation.shards.features
    streams, at = simulation.randomness.sampling, (current.number, stretch.last)
    alive = draw_survivors(network, present, streams, simulation.sums, at)
    by_protocol = {layer: np.zeros_like(members) for layer, members in alive.items()}
    remaining = network.without(by_protocol if current.masked else alive)
    by_chance = {network.tree.depth} if current.shortfalls is not None else set[int]()
    layers = by_chance | set(network.sums.layers)
    return replace(
        current,
        aggregator=build_aggregator(remaining, features),
        shortfalls=shortfalls(remaining, current.mechanism.lock_step, present, layers, features),
        weighing=remaining,
        alive=alive,
    )


def _stretches(current: Round) -> Iterator[Stretch]:
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
            yield Stretch(first, step, top, minibatches[first - 1 : step])
            first = step + 1


def _run_stretch(
    current: Round, stretch: Stretch, starts: dict[int, Starts], references: References
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
    lacking = current.shortfalls
    updates = None if lacking is None else Updates(references, lacking)
    send = partial(_send, current, stretch, updates)
    sums = aggregator.nothing_received(stretch.top, n_parameters)
    parts_by_layer: dict[int, list[Tensor]] = {}
    sent = None
    if current.separate and devices in learners.blocks:
        sent = sums[stretch.top].new_zeros(len(learners.present), n_parameters)
    for head_layer, part, models in stepped(current, stretch, starts):
        heads = _heads(learners, part, models)
        if head_layer <= stretch.top:
            parts_by_layer.setdefault(head_layer, []).append(models.clone())
        elif head_layer < devices:
            sums[head_layer][heads] = models
        elif sent is None:
            aggregator.receive(sums, devices, heads, models)
        else:
            sent[heads] = models
    if sent is not None:
        send(devices, sent)
        heads = _heads(learners, learners.blocks[devices], sent)
        aggregator.receive(sums, devices, heads, sent[heads])
    if current.separate:
        models = aggregator.climb(sums, stretch.top, send, updates)
    else:
        models = aggregator.climb(sums, stretch.top, updates=updates)
        if current.mechanism.private:
            _add_summed_noise(current, stretch, models)
    unreached = {head_layer: torch.cat(parts) for head_layer, parts in parts_by_layer.items()}
    return unreached, unreached.get(0, models) if stretch.top == 0 else models


def _send(
    current: Round, stretch: Stretch, updates: Updates | None, layer: int, messages: Tensor
) -> None:
    """Noise what nodes of a layer send, (N_l, M), in place; masked or open, somebody gets it."""
    noise, scales = torch.zeros_like(messages), current.mechanism.noise.sent(stretch.top)[layer]
    scales = scales * (layer < current.network.tree.depth or current.learners.present)
    add_round_noise(current, stretch.last, "message-noise", layer, scales, noise)
    if current.masked and updates is not None and layer in current.alive:
        sums = model_sums(current, stretch.last, layer, messages, noise, updates.references)
        updates.arrived[current.network.sums.reader_layer(layer)] = sums
    messages.add_(noise)
    if current.tap is not None:
        current.tap("up", layer, messages)


def _heads(learners: Learners, part: range, models: Tensor) -> Tensor:
    """The indices, within their layer, of the heads of some learners of one block."""
    return torch.as_tensor(learners.heads[part.start : part.stop, 1], device=models.device)


def _add_summed_noise(current: Round, stretch: Stretch, models: Tensor) -> None:
    """Draw all noise of the last step, unless it is in the models, and of the messages below each
    model as one."""
    noise, lock_step = current.mechanism.noise, current.mechanism.lock_step
    steps = current.steps[stretch.last - 1].noise
    deviations = [scales.copy() for scales in noise.sent(stretch.top)]
    layers = range(0) if current.noised_inside else range(stretch.top + 1, len(deviations))
    for layer in layers:
        in_layer = lock_step.nodes[:, 0] == layer
        nodes = lock_step.nodes[in_layer, 1]
        deviations[layer][nodes] = np.hypot(deviations[layer][nodes], steps[in_layer])
    present = current.learners.present
    summed = summed_deviations(current.weighing, present, deviations, stretch.top)
    add_round_noise(current, stretch.last, "summed-noise", stretch.top, summed, models)
