"""A round of a part of a simulation: local steps, local aggregations, and what it adds to the
cloud's sum.

A round is a few stretches of local steps, each ended by an aggregation. Models are added in the
order of the learners, so no result depends on the size of tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import (
    References,
    Shortfalls,
    Updates,
    build_aggregator,
    shortfalls,
)
from m2fdp.core.engine.announcements import (
    Announcement,
    summed_noise,
    weighed,
)
from m2fdp.core.engine.executor import Means
from m2fdp.core.engine.learners import Learners, draw_minibatches, form_learners
from m2fdp.core.engine.lengths import refuse_too_long
from m2fdp.core.engine.process import Ear, Named, Tap
from m2fdp.core.engine.starts import Starts, first_starts, next_starts
from m2fdp.core.engine.step_sums import steps_by_device
from m2fdp.core.engine.stretches import Round, Stretch, stepped
from m2fdp.core.engine.subtrees import Part
from m2fdp.secure_aggregation.model_sums import model_sums


def run_part(
    part: Part, means: Means, announced: Announcement, slots: Named, tap: Tap | None
) -> Tensor:
    """A round of a part: what each of its blocks adds to the cloud's sum, (n, M). It follows from
    the arguments alone.

    Of the whole, the model that the global aggregation ends in, (1, M).

    Args:
        slots: (g, M) each, of the part's lock-step groups; they are written to.
        tap: hears every message; of the whole only.
    """
    current = _begin(part, means, announced, slots, tap)
    tree = current.network.tree
    starts = first_starts(current.learners, announced.model)
    references = References(tree, ((0, announced.model[None]),) * tree.depth)
    for stretch in _stretches(current):
        unreached, models = _run_stretch(current, stretch, starts, references)
        if stretch.top > 0:
            broadcasts = current.mechanism.noise.broadcasts[stretch.top]
            current.noise.add(stretch.last, "downlink-noise", stretch.top, broadcasts, models)
            if tap is not None:
                tap("down", stretch.top, models)
            _look_how_long(current, stretch.top, models)
        elif stretch.last < len(current.plan.layers) and isinstance(tap, Ear):
            tap.inside("cloud", 0, np.zeros(1, dtype=np.int64), models)
        starts = next_starts(starts, current.learners, tree, models, stretch.top, unreached)
        references = references.after(stretch.top, models)
    return models


def _look_how_long(current: Round, top: int, models: Tensor) -> None:
    """End training where local steps would begin from a model of a layer (N_top, M) that is too
    long; what no noise covers is not looked at.

    Raises:
        TooLongError: one is.
    """
    eta = current.plan.step_size
    longest = current.simulation.rules.longest_received(eta)
    covered = current.mechanism.noise.covers(current.network.tree, top)
    if longest != math.inf and covered.any():
        lengths = models[torch.as_tensor(covered, device=models.device)].double().norm(dim=1)
        refuse_too_long(float(lengths.max()), longest, eta, "after a local aggregation")


def _begin(
    part: Part, means: Means, announced: Announcement, slots: Named, tap: Tap | None
) -> Round:
    """The round as a part finds it."""
    simulation, plan = part.simulation, announced.plan
    network, mechanism = simulation.networks[plan.network], simulation.mechanisms[plan.network]
    present, features = announced.present[part.devices], simulation.shards.features
    learners = form_learners(
        network, mechanism, present, steps_by_device(simulation, network, mechanism)
    )
    aggregator, lacking = means.aggregators[plan.network], None
    if announced.weights is not None:
        network = weighed(network, announced.weights[part.devices])
        aggregator = build_aggregator(network, features, part.blocks)
        lacking = shortfalls(network, mechanism.lock_step, present, True, {}, features)
    return Round(
        announced.number,
        plan,
        simulation,
        means,
        network,
        mechanism,
        aggregator,
        learners,
        part.of_steps(announced.steps),
        announced.noise(simulation, part.first),
        _but_at_cloud(part, lacking),
        tap,
        network,
        part,
        announced.weights is not None,
        part.learners_before(announced.present),
        {step: part.of_layers(alive) for step, alive in announced.alive.items()},
        slots,
        announced.received,
    )


def _but_at_cloud(part: Part, lacking: Shortfalls | None) -> Shortfalls | None:
    """What the cloud's sum lacks is known to the cloud alone."""
    return (None, *lacking[1:]) if part.in_blocks and lacking is not None else lacking


def _before_sums(current: Round, stretch: Stretch) -> Round:
    """The round as the aggregation after a stretch finds it: of those who are summed some fell
    silent, or all bring what they send by the protocol instead."""
    if stretch.last not in current.alive:
        return current
    features, alive = current.simulation.shards.features, current.alive[stretch.last]
    by_protocol = {layer: np.zeros_like(members) for layer, members in alive.items()}
    remaining = current.network.without(by_protocol if current.masked else alive)
    lacking = shortfalls(
        remaining,
        current.mechanism.lock_step,
        current.learners.present,
        current.by_chance,
        alive,
        features,
    )
    return replace(
        current,
        aggregator=build_aggregator(remaining, features, current.part.blocks),
        shortfalls=_but_at_cloud(current.part, lacking),
        weighing=remaining,
    )


def _stretches(current: Round) -> Iterator[Stretch]:
    """The round, cut after every aggregation."""
    minibatches = draw_minibatches(
        current.learners,
        current.mechanism,
        current.simulation.shards,
        current.simulation.randomness.sampling,
        current.number,
        [sums.devices for sums in current.steps],
        current.part.first_record,
    )
    for first, last, top in current.plan.stretches:
        yield Stretch(first, last, top, minibatches[first - 1 : last])


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
    if current.separate and devices in learners.ranges:
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
        heads = _heads(learners, learners.ranges[devices], sent)
        aggregator.receive(sums, devices, heads, sent[heads])
    if current.separate:
        models = aggregator.climb(sums, stretch.top, send, updates)
    else:
        models = aggregator.climb(sums, stretch.top, updates=updates)
        if current.mechanism.private and not (stretch.top == 0 and current.part.in_blocks):
            steps = None if current.noised_inside else current.steps[stretch.last - 1].noise
            present, top = learners.present, stretch.top
            summed = summed_noise(current.mechanism, steps, current.weighing, present, top)
            current.noise.add(stretch.last, "summed-noise", top, summed, models)
    unreached = {head_layer: torch.cat(parts) for head_layer, parts in parts_by_layer.items()}
    return unreached, unreached.get(0, models) if stretch.top == 0 else models


def _send(
    current: Round, stretch: Stretch, updates: Updates | None, layer: int, messages: Tensor
) -> None:
    """Noise what nodes of a layer send, (N_l, M), in place; masked or open, somebody gets it."""
    noise, scales = torch.zeros_like(messages), current.mechanism.noise.sent(stretch.top)[layer]
    scales = scales * (layer < current.network.tree.depth or current.learners.present)
    current.noise.add(stretch.last, "message-noise", layer, scales, noise)
    if current.masked and updates is not None and layer in current.alive.get(stretch.last, {}):
        sums = model_sums(current, stretch.last, layer, messages, noise, updates.references)
        updates.arrived[current.network.sums.reader_layer(layer)] = sums
    messages.add_(noise)
    if current.tap is not None:
        current.tap("up", layer, messages)


def _heads(learners: Learners, part: range, models: Tensor) -> Tensor:
    """The indices, within their layer, of the heads of some learners of one head layer."""
    return torch.as_tensor(learners.heads[part.start : part.stop, 1], device=models.device)
