"""The tree process: J Algorithm 1 on any tree, with noise where the plan says.

Algorithms differ by network, mechanism, rules and schedule, never by code here.

A round is a few stretches of local steps, each ended by an aggregation. Models are added in the
order of the learners, so no result depends on the size of tiles or on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.aggregation import (
    References,
    Updates,
    all_missing,
    build_aggregator,
    first_references,
)
from m2fdp.simulation.executor import ExecutionSettings, Executor, Means, build_executor
from m2fdp.simulation.learners import Learners, draw_minibatches, form_learners
from m2fdp.simulation.masked_sums import Senders
from m2fdp.simulation.noise import RoundNoise, summed_deviations
from m2fdp.simulation.process import Named, Slots, State, Tap
from m2fdp.simulation.sampling import draw_participants
from m2fdp.simulation.simulation import Simulation
from m2fdp.simulation.slots import slots_after, slots_in_use
from m2fdp.simulation.starts import Starts, first_starts, next_starts
from m2fdp.simulation.step_sums import StepSums, step_sums, steps_by_device
from m2fdp.simulation.stretches import Round, Stretch, noises_inside, stepped
from m2fdp.simulation.subtrees import Part
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
        return State(0, weights, Slots(self.simulation.rules.server.start(weights)))

    def round(self, state: State, plan: RoundPlan, tap: Tap | None = None) -> State:
        """One round of J Alg. 1: K local steps, local aggregations, the global aggregation.

        `tap` sees every message up, and every broadcast down of a local aggregation. While
        somebody listens every message has a noise of its own; else noises that only feed a sum
        are drawn as one, so the two rounds are equal in distribution, not to the bit.
        """
        simulation, executor = self.simulation, self.executor
        announced = announce(simulation, plan, state)
        slots = slots_in_use(simulation, executor.workers, state)
        if tap is None and executor.in_blocks:
            self._share(announced, slots)
            model = _at_cloud(simulation, announced, executor.sums)
        else:
            part, means = executor.whole
            model = run_part(part, means, announced, slots, tap)
        cloud = simulation.mechanisms[plan.network].noise.messages[0]
        noise = announced.noise(simulation)
        noise.add(len(plan.layers), "cloud-noise", 0, cloud, model)
        after = slots_after(simulation, plan, announced.present, slots, state.slots)
        weights, server = simulation.rules.server.step(state.weights, model[0], after.server)
        return State(announced.number, weights, replace(after, server=server))

    def _share(self, announced: Announcement, slots: Named) -> None:
        """Have all blocks computed, by some processes."""
        simulation, executor = self.simulation, self.executor
        steps = [mechanism.noise.steps for mechanism in simulation.mechanisms]
        fixed = (self, executor, executor.sums, *slots.values(), *steps)
        kind = f"{len(announced.plan.layers)} steps"
        work = partial(_run_blocks, self, announced, slots)
        executor.workers.share(kind, executor.costs * len(announced.plan.layers), work, fixed=fixed)


def build_process(simulation: Simulation, settings: ExecutionSettings | None = None) -> TreeProcess:
    """The rounds of a simulation, with the means to run them."""
    return TreeProcess(simulation, build_executor(simulation, settings or ExecutionSettings()))


@dataclass(frozen=True, eq=False)
class Announcement:
    """What is decided of round t = `number` before anybody computes.

    Attributes:
        model: (M,), global model that it begins with.
        received: the server's slots, (M,) each.
        present: bool (N_L,), the devices that take part.
        steps: local steps k = 1…K.
        weights: float64 (N_L,), what the devices' updates count with, where they join by chance;
            else None.
        alive: by the step that an aggregation follows, and by layer l of sums, bool (N_l,), who has
            not fallen silent by then; empty where all that are summed bring what they send.
    """

    number: int
    plan: RoundPlan
    model: Tensor
    received: Named
    present: np.ndarray
    steps: tuple[StepSums, ...]
    weights: np.ndarray | None
    alive: dict[int, dict[int, np.ndarray]]

    def noise(self, simulation: Simulation, first: tuple[int, ...] | None = None) -> RoundNoise:
        """The round's draws.

        Args:
            first: places of a part's first nodes; None = the whole.
        """
        scale = simulation.mechanisms[self.plan.network].noise.scale(self.plan.step_size)
        first = first or (0,) * (simulation.networks[0].tree.depth + 1)
        return RoundNoise(simulation.randomness.noise, self.number, scale, first)


def announce(simulation: Simulation, plan: RoundPlan, state: State) -> Announcement:
    """Draw who takes part in a round, and who falls silent in it.

    Raises:
        LostSumError: see `draw_survivors`.
    """
    number, network = state.round + 1, simulation.networks[plan.network]
    streams, rules = simulation.randomness.sampling, simulation.sums
    present = draw_participants(network, streams, number)
    steps = step_sums(simulation, plan, present, number)
    alive = {}
    if network.sums.layers and (network.sums.dropout or rules.masks):
        for step, top in enumerate(plan.layers, start=1):
            if top is not None:
                alive[step] = draw_survivors(network, present, streams, rules, (number, step))
    weights = None if network.participation is None else network.among(present).weights[-1]
    server = state.slots.server
    return Announcement(number, plan, state.weights, server, present, steps, weights, alive)


def _run_blocks(process: TreeProcess, announced: Announcement, slots: Named, blocks: range) -> None:
    """Compute some blocks, and leave what they add to the cloud's sum and what learners keep in
    memory that processes share."""
    part, means = process.executor.part(blocks)
    rows = torch.as_tensor(part.groups)
    own = {name: of_all[rows] for name, of_all in slots.items()}
    sums = run_part(part, means, announced, own, None)
    process.executor.sums[blocks.start : blocks.stop] = sums
    for name, of_all in slots.items():
        of_all[rows] = own[name]


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
    references = first_references(tree, announced.model)
    for stretch in _stretches(current):
        own, models = _run_stretch(current, stretch, starts, references)
        if stretch.top > 0:
            broadcasts = current.mechanism.noise.broadcasts[stretch.top]
            current.noise.add(stretch.last, "downlink-noise", stretch.top, broadcasts, models)
            if tap is not None:
                tap("down", stretch.top, models)
        starts = next_starts(starts, current.learners, tree, models, stretch.top, own)
        references = references.after(stretch.top, models)
    return models


def _at_cloud(simulation: Simulation, announced: Announcement, sums: Tensor) -> Tensor:
    """The model (1, M) that a global aggregation ends in, from the blocks' sums (n, M)."""
    which, last = announced.plan.network, len(announced.plan.layers)
    mechanism, present = simulation.mechanisms[which], announced.present
    blocks = torch.zeros(len(sums), dtype=torch.int64, device=sums.device)
    model = torch.zeros_like(sums[:1]).index_add_(0, blocks, sums)
    network = _weighed(simulation.networks[which], announced.weights)
    alive = announced.alive.get(last, {})
    weighing = network.without(alive) if alive else network
    by_chance = announced.weights is not None
    missing = _missing(weighing, mechanism, present, by_chance, alive, sums)
    if missing is not None and missing[0] is not None:
        model.addcmul_(missing[0], announced.model[None])
    if mechanism.private:
        noised_inside = noises_inside(simulation.rules.local, mechanism.noise)
        steps = None if noised_inside else announced.steps[last - 1].noise
        scales = _summed_noise(mechanism, steps, weighing, present, 0)
        announced.noise(simulation).add(last, "summed-noise", 0, scales, model)
    return model


def _begin(
    part: Part, means: Means, announced: Announcement, slots: Named, tap: Tap | None
) -> Round:
    """The round as a part finds it."""
    simulation, plan = part.simulation, announced.plan
    network, mechanism = simulation.networks[plan.network], simulation.mechanisms[plan.network]
    present, like = announced.present[part.devices], simulation.shards.features
    learners = form_learners(
        network, mechanism, present, steps_by_device(simulation, network, mechanism)
    )
    aggregator, missing = means.aggregators[plan.network], None
    if announced.weights is not None:
        network = _weighed(network, announced.weights[part.devices])
        aggregator = build_aggregator(network, like.dtype, like.device, part.blocks)
        missing = _missing(network, mechanism, present, True, {}, like)
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
        _but_at_cloud(part, missing),
        tap,
        network,
        part,
        announced.weights is not None,
        part.learners_before(announced.present),
        {step: part.of_layers(alive) for step, alive in announced.alive.items()},
        slots,
        announced.received,
    )


def _weighed(network: Network, weights: np.ndarray | None) -> Network:
    """The network with the weights of a round's devices, float64 (N_L,), if they have any."""
    if weights is None:
        return network
    return replace(network, participation=None, rho=(*network.weights[:-1], weights))


def _missing(
    network: Network,
    mechanism: CalibratedMechanism,
    present: np.ndarray,
    by_chance: bool,
    alive: Mapping[int, np.ndarray],
    like: Tensor,
) -> tuple[Tensor | None, ...] | None:
    """`Updates.missing`, of who does not come by chance, or fell silent; None where all do."""
    layers = {network.tree.depth} if by_chance else set[int]()
    if alive:
        layers |= network.sums.layers
    return all_missing(network, mechanism.lock_step, present, layers, like) if layers else None


def _but_at_cloud(
    part: Part, missing: tuple[Tensor | None, ...] | None
) -> tuple[Tensor | None, ...] | None:
    """What is missing at the cloud is known to the cloud alone."""
    return (None, *missing[1:]) if part.in_blocks and missing is not None else missing


def _before_sums(current: Round, stretch: Stretch) -> Round:
    """The round as the aggregation after a stretch finds it: of those who are summed some fell
    silent, or all bring what they send by the protocol instead."""
    if stretch.last not in current.alive:
        return current
    like, alive = current.simulation.shards.features, current.alive[stretch.last]
    by_protocol = {layer: np.zeros_like(members) for layer, members in alive.items()}
    left = current.network.without(by_protocol if current.masked else alive)
    present, by_chance = current.learners.present, current.by_chance
    missing = _missing(left, current.mechanism, present, by_chance, alive, like)
    return replace(
        current,
        aggregator=build_aggregator(left, like.dtype, like.device, current.part.blocks),
        missing=_but_at_cloud(current.part, missing),
        weighing=left,
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
        current.part.first_record,
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
    updates = None if current.missing is None else Updates(references, current.missing)
    send = partial(_send, current, stretch, updates)
    sums = aggregator.nothing_received(stretch.top, n_parameters)
    own: dict[int, list[Tensor]] = {}
    sent = None
    if current.separate and devices in learners.blocks:
        sent = sums[stretch.top].new_zeros(len(learners.present), n_parameters)
    for head_layer, part, models in stepped(current, stretch, starts):
        heads = _heads(learners, part, models)
        if head_layer <= stretch.top:
            own.setdefault(head_layer, []).append(models.clone())
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
        if current.mechanism.private and not (stretch.top == 0 and current.part.in_blocks):
            steps = None if current.noised_inside else current.steps[stretch.last - 1].noise
            present, top = learners.present, stretch.top
            summed = _summed_noise(current.mechanism, steps, current.weighing, present, top)
            current.noise.add(stretch.last, "summed-noise", top, summed, models)
    kept = {head_layer: torch.cat(parts) for head_layer, parts in own.items()}
    return kept, kept.get(0, models) if stretch.top == 0 else models


def _send(
    current: Round, stretch: Stretch, updates: Updates | None, layer: int, messages: Tensor
) -> None:
    """Noise what nodes of a layer send, (N_l, M), in place; masked or open, somebody gets it."""
    noise, scales = torch.zeros_like(messages), current.mechanism.noise.sent(stretch.top)[layer]
    scales = scales * (layer < current.network.tree.depth or current.learners.present)
    current.noise.add(stretch.last, "message-noise", layer, scales, noise)
    alive = current.alive.get(stretch.last, {})
    if current.masked and updates is not None and layer in alive:
        senders = Senders(
            current.network,
            current.mechanism,
            current.learners.present,
            alive,
            updates.references,
            current.simulation.shards.rates,
            len(current.plan.layers),
            current.plan.step_size,
            current.simulation.sums.label(current.number, stretch.last),
        )
        reader_layer = current.network.sums.reader_layer(layer)
        updates.arrived[reader_layer] = senders.bring(layer, messages, noise)
    messages.add_(noise)
    if current.tap is not None:
        current.tap("up", layer, messages)


def _heads(learners: Learners, part: range, like: Tensor) -> Tensor:
    """The indices, within their layer, of the heads of some learners of one block."""
    return torch.as_tensor(learners.heads[part.start : part.stop, 1], device=like.device)


def _summed_noise(
    mechanism: CalibratedMechanism,
    steps: np.ndarray | None,
    weighing: Network,
    present: np.ndarray,
    top: int,
) -> np.ndarray:
    """Deviations of all noise of the last step and of the messages below each model of layer `top`,
    which is drawn as one: float64 (N_top,).

    Args:
        steps: float64 (G,), deviations of the step's noise; None where it is in the models.
        present: bool (N_L,), the devices that send.
    """
    lock_step = mechanism.lock_step
    steps = np.zeros(len(lock_step.nodes)) if steps is None else steps
    deviations = [scales.copy() for scales in mechanism.noise.sent(top)]
    for layer in range(top + 1, len(deviations)):
        in_layer = lock_step.nodes[:, 0] == layer
        nodes, of_layer = lock_step.nodes[in_layer, 1], deviations[layer]
        of_layer[nodes] = np.hypot(of_layer[nodes], steps[in_layer])
    return summed_deviations(weighing, present, deviations, top)
