"""The local steps of a stretch: all that happens between two aggregations.

Within a stretch no learner hears of another, so learners are stepped in tiles that fit the cache,
on several processes, and only sums of models are kept.
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
from m2fdp.simulation.aggregation import Aggregator
from m2fdp.simulation.clipping import clip_layers
from m2fdp.simulation.executor import ALIGNED_ROWS, Executor
from m2fdp.simulation.learners import Learners
from m2fdp.simulation.local_rules import LocalRule, ProximalStep, adds_up, is_known, keeping
from m2fdp.simulation.minibatches import Minibatches
from m2fdp.simulation.noise import add_noise
from m2fdp.simulation.process import Named, Tap
from m2fdp.simulation.simulation import Simulation
from m2fdp.simulation.starts import Starts
from m2fdp.simulation.step_sums import StepSums, summed_step
from m2fdp.topology.network import Network

# A step of a learner costs as much as so many records, whatever records it uses.
_STEP_COST = 8.0


@dataclass(frozen=True, eq=False)
class Round:
    """Round t = `number`: what is planned, and who takes part.

    Attributes:
        network: the round's, with the weights that those have who take part.
        aggregator, weighing: the same with the weights of what is added up as it is.
        shortfalls: see `Updates`; None where all weights sum to one, and models are aggregated.
        slots: the devices', (G, M) each, which steps write in place.
        received: the server's slots, (M,) each.
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
    shortfalls: tuple[Tensor | None, ...] | None
    tap: Tap | None
    weighing: Network
    alive: Mapping[int, np.ndarray] = field(default_factory=dict)
    slots: Named = field(default_factory=dict)
    received: Named = field(default_factory=dict)

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
    def noised_inside(self) -> bool:
        """Whether a step is noised inside `descend`: what its rule makes of it is not known, or its
        noise is no step's alone."""
        return not adds_up(self.local) or bool(self.mechanism.noise.past)

    @property
    def masked(self) -> bool:
        """Whether the protocol of secure aggregation is run."""
        return self.simulation.sums.masks

    @property
    def fixed(self) -> tuple[object, ...]:
        """What no round changes: other processes have it already."""
        simulation, shards = self.simulation, self.simulation.shards
        parts = (simulation, simulation.randomness, shards.features, shards.labels)
        networks = (*simulation.networks, *(network.tree for network in simulation.networks))
        means = (self.executor, *self.executor.aggregators)
        return (*parts, *means, *networks, *simulation.mechanisms, *self.slots.values())

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


def stepped(
    current: Round, stretch: Stretch, starts: dict[int, Starts]
) -> Iterator[tuple[int, range, Tensor]]:
    """The learners after the stretch: of one head layer, so many (n, M) at a time, in order.

    The next ones overwrite those before.
    """
    executor, blocks = current.executor, current.learners.blocks
    results, group = executor.results, executor.backend.group
    none = np.zeros(0, dtype=np.int64)
    ends = np.concatenate([none, *(_group_ends(block, group) for block in blocks.values())])
    costs = np.diff(np.cumsum(_costs(current, stretch))[ends - 1], prepend=0.0)
    done = 0
    while done < len(ends):
        first = int(ends[done - 1]) if done else 0
        room = len(results) - ALIGNED_ROWS * (len(blocks) - 1)
        end = int(np.searchsorted(ends, first + room, side="right"))
        work = partial(_step_groups, _sendable(current), stretch, starts, first, ends[done:end])
        kind = f"{len(stretch.minibatches)} steps of {first}"
        executor.workers.share(kind, costs[done:end], work, fixed=current.fixed)
        for head_layer, part, row in _rows(blocks, range(first, int(ends[end - 1]))):
            yield head_layer, part, results[row : row + len(part)]
        done = end


def _rows(blocks: Mapping[int, range], wave: range) -> Iterator[tuple[int, range, int]]:
    """Of some learners those of each head layer, and the row of the results for the first."""
    row = 0
    for head_layer, block in blocks.items():
        part = range(max(block.start, wave.start), min(block.stop, wave.stop))
        if part:
            yield head_layer, part, row
            row += -(-len(part) // ALIGNED_ROWS) * ALIGNED_ROWS


def _group_ends(block: range, group: int) -> np.ndarray:
    """Where groups of so many learners of a block end, the last of which may be smaller."""
    return np.append(np.arange(block.start + group, block.stop, group), block.stop)


def _costs(current: Round, stretch: Stretch) -> np.ndarray:
    """What each learner's part of the stretch costs about, in records: float64 (n,)."""
    units = current.learners.learner_of_unit
    costs = np.full(len(current.learners.heads), _STEP_COST * len(stretch.minibatches))
    for minibatches in stretch.minibatches:
        costs += np.bincount(units, weights=minibatches.counts, minlength=len(costs))
    return costs


def _sendable(current: Round) -> Round:
    """The round without what no step asks for; what it has anew can be sent to another process."""
    aggregator = current.executor.aggregators[current.plan.network]
    silent_tap = None if current.tap is None else _nothing_heard
    weighing = current.network
    return replace(
        current, aggregator=aggregator, shortfalls=None, tap=silent_tap, weighing=weighing, alive={}
    )


def _nothing_heard(direction: str, layer: int, messages: Tensor) -> None:
    """A tap for processes whose steps nobody hears."""


def _step_groups(
    current: Round,
    stretch: Stretch,
    starts: dict[int, Starts],
    first: int,
    ends: np.ndarray,
    part: range,
) -> None:
    """Take some groups of learners through the stretch; their models are left in `results`.

    Args:
        first: the learner whose model is the first of the results.
        ends: int64 (g,), where groups end, the first of which begins with that learner.
    """
    executor = current.executor
    bounds = [first, *ends.tolist()]
    learners = range(bounds[part.start], bounds[part.stop])
    center = current.plan.center if current.plan.proximal else "received"
    # A rule that is not known sees one learner, so that it carries nothing from one to another.
    size = executor.tile if is_known(current.local) else 1
    blocks = current.learners.blocks
    for head_layer, all_here, row in _rows(blocks, range(first, bounds[-1])):
        start, stop = max(all_here.start, learners.start), min(all_here.stop, learners.stop)
        for begin in range(start, stop, size):
            tile = range(begin, min(begin + size, stop))
            before = blocks[head_layer].start
            places = slice(tile.start - before, tile.stop - before)
            at = row + tile.start - all_here.start
            models = executor.results[at : at + len(tile)]
            starts[head_layer].current.of(places, room=models)
            anchors = None
            if current.local.anchored:
                anchors = starts[head_layer].anchors(center).of(places)
            _step_tile(current, stretch, tile, models, anchors)


def _step_tile(
    current: Round, stretch: Stretch, tile: range, models: Tensor, anchors: Tensor | None
) -> None:
    """Take the models (n, M) of some learners through the steps of a stretch, in place."""
    learners, eta = current.learners, current.plan.step_size
    update_norm = current.mechanism.clipping.update_norm
    (layer, *_), nodes = learners.heads[tile.start : tile.stop].T
    groups = learners.groups[tile.start : tile.stop]
    rows = torch.as_tensor(groups, device=models.device)
    slots = {name: values[rows] for name, values in current.slots.items()}
    local = current.local_of(slots)
    noised_inside = current.noised_inside
    # What is left for the last step: the aggregation above draws the others' noise as one.
    separate = current.separate or layer <= stretch.top or noised_inside
    start = models.clone() if update_norm is not None else None
    in_sums = current.separate and bool(current.steps[0].members)

    def add_step_noise(step: int, models: Tensor) -> None:
        if in_sums and not current.masked:
            noise = _summed_step(current, step, None, (int(layer), nodes))
            models.add_(noise[torch.as_tensor(nodes, device=models.device)], alpha=eta)
        elif not in_sums and (separate or step < stretch.last):
            scales = current.steps[step - 1].noise[groups]
            add_round_noise(current, step, "step-noise", int(layer), scales, models, nodes)
            for lag, part in enumerate(current.mechanism.noise.past, start=1):
                if (drawn_at := _earlier(current, step, lag)) is not None:
                    earlier, at = replace(current, number=drawn_at[0]), drawn_at[1]
                    past_scales = part * scales
                    add_round_noise(
                        earlier, at, "step-noise", int(layer), past_scales, models, nodes
                    )

    def descend(step: int, minibatches: Minibatches, models: Tensor) -> None:
        _descend(current, tile, step, minibatches, models)
        if noised_inside:
            add_step_noise(step, models)

    for step, minibatches in enumerate(stretch.minibatches, start=stretch.first):
        local.step(models, anchors, eta, partial(descend, step, minibatches))
        if not noised_inside:
            add_step_noise(step, models)
    for name, values in slots.items():
        current.slots[name][rows] = values
    if update_norm is not None and start is not None:
        updates = _clipped(current, models - start, eta * update_norm)
        torch.add(start, updates, out=models)
    if current.mechanism.clipping.model_norm is not None:
        _clipped(current, models, current.mechanism.clipping.model_norm)


def _earlier(current: Round, step: int, lag: int) -> tuple[int, int] | None:
    """Round and step of so many local steps before; None before the first."""
    each = len(current.plan.layers)
    number, before = divmod((current.number - 1) * each + step - 1 - lag, each)
    return (number + 1, before + 1) if number >= 0 else None


def _clipped(current: Round, vectors: Tensor, norm: float) -> Tensor:
    """Gradients or updates of devices (n, M), each clipped to a norm, in place."""
    layers = current.simulation.model.layers if current.mechanism.clipping.by_layer else None
    return clip_layers(vectors, norm, current.simulation.rules.clip_factor, layers)


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
    learners, clipping = current.learners, current.mechanism.clipping
    backend, eta = current.executor.backend, current.plan.step_size
    units = learners.units_of(tile)
    batches, places = minibatches.select(units), learners.learner_of_unit[units] - tile.start
    if (splitter := current.executor.splitter) is not None:
        at, devices = (current.number, step), learners.device_of_unit[units]
        return splitter.descend(current.plan, at, models, places, devices, batches)
    masked = current.masked and bool(current.steps[0].members)
    if clipping.batch_norm is None and not masked:
        backend.add_gradients(models, -eta, models, batches, clipping)
        return
    owners = torch.as_tensor(places, device=models.device)
    unit_models = models[owners]
    gradients = torch.zeros_like(unit_models)
    backend.add_gradients(gradients, 1.0, unit_models, batches, clipping)
    if clipping.batch_norm is not None:
        _clipped(current, gradients, clipping.batch_norm)
    shares = torch.as_tensor(learners.shares[units], device=models.device)
    gradients *= shares.to(models.dtype)[:, None]
    if masked:
        (layer, *_), nodes = learners.heads[tile.start : tile.stop].T
        vectors = models.new_zeros(len(learners.present), models.shape[1])
        vectors[torch.as_tensor(learners.device_of_unit[units]).to(models.device)] = -gradients
        summed = _summed_step(current, step, vectors, (int(layer), nodes))
        models.add_(summed[torch.as_tensor(nodes, device=models.device)], alpha=eta)
        return
    models.index_add_(0, owners, gradients, alpha=-eta)


def add_round_noise(
    current: Round,
    step: int,
    purpose: str,
    layer: int,
    scales: np.ndarray,
    models: Tensor,
    nodes: np.ndarray | None = None,
) -> None:
    """Add independent Gaussian noise to models (n, M), in place.

    Args:
        step: number of the local step.
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
