"""The local steps of a stretch: all that happens between two aggregations.

Within a stretch no learner hears of another, so learners are stepped in tiles that fit the cache,
and only sums of models are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import Aggregator, Shortfalls
from m2fdp.core.engine.executor import ALIGNED_ROWS, Means
from m2fdp.core.engine.learner import (
    AddNoise,
    Clip,
    StepRules,
    Units,
    gradient_step,
    local_steps,
    unit_gradients,
)
from m2fdp.core.engine.learners import Learners
from m2fdp.core.engine.local_rules import LocalRule, ProximalStep, adds_up, is_known, keeping
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.noise import RoundNoise
from m2fdp.core.engine.process import Ear, Named, Tap
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.engine.starts import Starts
from m2fdp.core.engine.step_sums import StepSums, added_up, summed_step
from m2fdp.core.engine.subtrees import Part
from m2fdp.core.privacy.mechanisms import Noise, Protection
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network


@dataclass(frozen=True, eq=False)
class Round:
    """Round t = `number` of a part of a simulation: what is planned, and who takes part.

    Attributes:
        simulation: the part's own.
        means: what the part is computed by.
        network: the round's, with the weights that those have who take part.
        aggregator, weighing: the same with the weights of what is added up as it is.
        noise: the round's draws.
        shortfalls: see `Updates`; None where all weights sum to one, and models are aggregated.
        part: the part's place in the whole.
        by_chance: whether devices join by chance.
        learners_before: {head layer: how many learners of the whole come before the part's}.
        alive: {the step that an aggregation follows: {layer l of sums: bool (N_l,), who has not
            fallen silent by then}}.
        slots: the devices', (G, M) each, which steps write in place.
        received: the server's slots, (M,) each.
    """

    number: int
    plan: RoundPlan
    simulation: Simulation
    means: Means
    network: Network
    mechanism: Protection
    aggregator: Aggregator
    learners: Learners
    steps: tuple[StepSums, ...]
    noise: RoundNoise
    shortfalls: Shortfalls | None
    tap: Tap | None
    weighing: Network
    part: Part
    by_chance: bool
    learners_before: Mapping[int, int]
    alive: Mapping[int, Mapping[int, np.ndarray]]
    slots: Named
    received: Named

    @property
    def local(self) -> LocalRule:
        """One local step, whoever's; see `local_of`."""
        return self.local_of({})

    def local_of(self, slots: Named) -> LocalRule:
        """One local step of learners with these slots, (n, M) each: the algorithm's, with the
        proximal term that is planned."""
        rule, mu = self.simulation.rules.local, self.plan.proximal
        if slots and (with_slots := keeping(rule)) is not None:
            rule = with_slots.of(slots, self.received)
        return ProximalStep(mu, rule) if mu else rule

    @property
    def clip(self) -> Clip:
        """What bounds the learners' gradients, updates and models."""
        clipping, rules = self.mechanism.clipping, self.simulation.rules
        layers = self.simulation.model.layers if clipping.by_layer else None
        return Clip(clipping, layers, rules.clip_factor)

    @property
    def noised_inside(self) -> bool:
        """See `noises_inside`."""
        return noises_inside(self.local, self.mechanism.noise)

    @property
    def masked(self) -> bool:
        """Whether the protocol of secure aggregation is run."""
        return self.simulation.sums.masks

    @property
    def separate(self) -> bool:
        """Whether every message has a noise of its own; else those that only feed a sum are one."""
        return self.tap is not None or self.masked


@dataclass(frozen=True, eq=False)
class Stretch:
    """Local steps up to an aggregation.

    Attributes:
        first, last: the numbers k of its steps.
        top: the layer that models travel up to afterwards.
        minibatches: each step's.
    """

    first: int
    last: int
    top: int
    minibatches: tuple[Minibatches, ...]


def noises_inside(local: LocalRule, noise: Noise) -> bool:
    """Whether a step is noised inside `descend`: what its rule makes of it is not known, or its
    noise is no step's alone."""
    return not adds_up(local) or bool(noise.past)


def stepped(
    current: Round, stretch: Stretch, starts: dict[int, Starts]
) -> Iterator[tuple[int, range, Tensor]]:
    """The learners after the stretch: of one head layer, so many (n, M) at a time, in order.

    The next ones overwrite those before.
    """
    means = current.means
    results, group = means.results, means.backend.group
    room = (len(results) - ALIGNED_ROWS) // group * group
    center = current.plan.center if current.plan.proximal else "received"
    # A rule that is not known sees one learner, so that it carries nothing from one to another.
    size = means.tile if is_known(current.local) else 1
    for head_layer, of_layer in current.learners.ranges.items():
        # A learner's place in memory is the same, up to a multiple, whatever part it is in.
        row = current.learners_before[head_layer] % ALIGNED_ROWS
        for first in range(of_layer.start, of_layer.stop, room):
            wave = range(first, min(first + room, of_layer.stop))
            models = results[row : row + len(wave)]
            for start in range(wave.start, wave.stop, size):
                tile = range(start, min(start + size, wave.stop))
                places = slice(tile.start - of_layer.start, tile.stop - of_layer.start)
                of_tile = models[tile.start - first : tile.stop - first]
                starts[head_layer].current.of(places, room=of_tile)
                anchors = None
                if current.local.anchored:
                    anchors = starts[head_layer].anchors(center).of(places)
                _step_tile(current, stretch, tile, of_tile, anchors)
            yield head_layer, wave, models
            row = (row + len(wave)) % ALIGNED_ROWS


def _step_tile(
    current: Round, stretch: Stretch, tile: range, models: Tensor, anchors: Tensor | None
) -> None:
    """Take the models (n, M) of some learners through the steps of a stretch, in place."""
    rows = torch.as_tensor(current.learners.groups[tile.start : tile.stop], device=models.device)
    slots = {name: values[rows] for name, values in current.slots.items()}
    rules = StepRules(
        current.local_of(slots),
        current.plan.step_size,
        current.clip,
        partial(_descend, current, tile),
        _step_noise(current, stretch, tile),
        current.noised_inside,
        current.simulation.rules.longest(current.plan.step_size),
    )
    local_steps(rules, models, anchors, stretch.minibatches, stretch.first)
    for name, values in slots.items():
        current.slots[name][rows] = values


def _step_noise(current: Round, stretch: Stretch, tile: range) -> AddNoise:
    """What adds the noise of a local step to the models of some learners."""
    learners, eta = current.learners, current.plan.step_size
    (layer, *_), nodes = learners.heads[tile.start : tile.stop].T
    groups = learners.groups[tile.start : tile.stop]
    # What is left for the last step: the aggregation above draws the others' noise as one.
    separate = current.separate or layer <= stretch.top or current.noised_inside
    in_sums = current.separate and bool(current.steps[0].members)
    ear = None
    if isinstance(current.tap, Ear) and current.mechanism.noise.in_steps:
        ear = current.tap

    def add(step: int, models: Tensor) -> None:
        if in_sums and not current.masked:
            noise = _summed_step(current, step, None, (int(layer), nodes))
            models.add_(noise[torch.as_tensor(nodes, device=models.device)], alpha=eta)
        elif not in_sums and (separate or step < stretch.last):
            scales = current.steps[step - 1].noise[groups]
            current.noise.add(step, "step-noise", int(layer), scales, models, nodes)
            for lag, part in enumerate(current.mechanism.noise.past, start=1):
                if (drawn_at := _earlier(current, step, lag)) is not None:
                    number, at = drawn_at
                    earlier, past_scales = current.noise.of_round(number), part * scales
                    earlier.add(at, "step-noise", int(layer), past_scales, models, nodes)
        if ear is not None:
            ear.inside("step", int(layer), nodes, models)

    return add


def _earlier(current: Round, step: int, lag: int) -> tuple[int, int] | None:
    """Round and step of so many local steps before; None before the first."""
    each = len(current.plan.layers)
    number, before = divmod((current.number - 1) * each + step - 1 - lag, each)
    return (number + 1, before + 1) if number >= 0 else None


def _summed_step(
    current: Round, step: int, vectors: Tensor | None, heads: tuple[int, np.ndarray]
) -> Tensor:
    simulation, at = current.simulation, (current.number, step)
    which = current.plan.network
    return summed_step(simulation, which, current.steps[step - 1], vectors, at, heads)


def _descend(
    current: Round, tile: range, step: int, minibatches: Minibatches, models: Tensor
) -> None:
    """One clipped gradient step (J eq. 6) of some learners, in place."""
    learners, eta = current.learners, current.plan.step_size
    units = learners.units_of(tile)
    batches, places = minibatches.select(units), learners.learner_of_unit[units] - tile.start
    if (splitter := current.means.splitter) is not None:
        at, devices = (current.number, step), learners.device_of_unit[units]
        return splitter.descend(current.plan, at, models, places, devices, batches)
    backend, of_tile = current.means.backend, Units(places, learners.shares[units])
    masked = current.masked and bool(current.steps[0].members)
    (layer, *_), nodes = learners.heads[tile.start : tile.stop].T
    alone = layer == current.network.tree.depth
    if not masked and (alone or not current.simulation.sums.by_device):
        return gradient_step(backend, current.clip, eta, batches, models, of_tile)
    gradients = unit_gradients(backend, current.clip, batches, models, of_tile)
    vectors = models.new_zeros(len(learners.present), models.shape[1])
    vectors[torch.as_tensor(learners.device_of_unit[units]).to(models.device)] = -gradients
    if masked:
        summed = _summed_step(current, step, vectors, (int(layer), nodes))
    else:
        summed = added_up(current.network.tree, vectors, int(layer))
    models.add_(summed[torch.as_tensor(nodes, device=models.device)], alpha=eta)
