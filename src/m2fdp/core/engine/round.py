"""A round of J Algorithm 1 on any tree, from top to bottom: `draw`, `below`, `at_cloud`.

Those who take part take local steps, learner by learner. Then models travel up to a layer, weighed,
and down again; at the end of the round they travel up to the cloud. Algorithms differ by network,
mechanism, rules and schedule, never by code here. A room that does one of these methods its own way
brings a subclass (`Room.rounds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import Aggregator, summed_noise
from m2fdp.core.engine.learner import Clip, StepRules, Units, gradient_step, local_steps
from m2fdp.core.engine.learners import Learners, draw_minibatches, form_learners
from m2fdp.core.engine.lengths import refuse_longest
from m2fdp.core.engine.local_rules import LocalRule, ProximalStep, adds_up, is_known
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.noise import RoundNoise
from m2fdp.core.engine.process import Named, Slots, State
from m2fdp.core.engine.sampling import draw_participants
from m2fdp.core.engine.server_sums import weighed_sum
from m2fdp.core.engine.simulation import Simulation, Workers
from m2fdp.core.engine.tiles import Means, Rows, stepped
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network


@dataclass(frozen=True, eq=False)
class Step:
    """What one local step adds up.

    Attributes:
        devices: bool (N_L,), whose gradients count.
        noise: float64 (G,), the deviation of each lock-step group's noise, in units of eta.
        members: {layer l: bool (N_l,), the nodes that are in a sum}; empty without such sums.
    """

    devices: np.ndarray
    noise: np.ndarray
    members: Mapping[int, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Drawn:
    """What is drawn of round t = `number` before anybody computes.

    Attributes:
        model: (M,), the global model that the round begins with.
        received: the server's slots, (M,) each.
        present: bool (N_L,), the devices that take part.
        steps: local steps k = 1…K.
        weights: {step that an aggregation follows: rho}, where rho is not the network's.
        before: {head layer: learners of the whole before those of a part}.
    """

    number: int
    plan: RoundPlan
    model: Tensor
    received: Named
    present: np.ndarray
    steps: tuple[Step, ...]
    weights: Mapping[int, tuple[np.ndarray, ...]] = field(default_factory=dict)
    before: Mapping[int, int] = field(default_factory=dict)


class Round:
    """One round of a simulation, or of some of its subtrees, while it is computed.

    Args:
        slots: what local rules keep of learners, (G, M) each; steps write it in place.
    """

    # The noises that are drawn, by the names of `Noise`.
    draws = frozenset({"steps", "messages", "local_messages", "broadcasts"})
    kinds: tuple[type[Round], ...] = ()  # whose ways it goes
    in_blocks = True  # whether a subtree's steps are its own
    heard = False  # whether somebody listens, so that every message has a noise of its own
    by_device = False  # whether every device of a lock-step group has a gradient of its own

    def __init__(
        self, simulation: Simulation, means: Means, drawn: Drawn, slots: Named | None = None
    ) -> None:
        self.simulation, self.means, self.drawn, self.slots = simulation, means, drawn, slots or {}
        self.plan, which = drawn.plan, drawn.plan.network
        self.network, self.mechanism = simulation.networks[which], simulation.mechanisms[which]
        self.tree, self.clipping = self.network.tree, self.mechanism.clipping
        unit = self.mechanism.noise.scale(self.plan.step_size)
        streams, first = simulation.randomness.noise, means.place.first
        self.noise = RoundNoise(streams, drawn.number, unit, first)

    @classmethod
    def draw(cls, simulation: Simulation, plan: RoundPlan, state: State) -> Drawn:
        """Draw who takes part in the round after a state."""
        number, network = state.round + 1, simulation.networks[plan.network]
        present = draw_participants(network, simulation.randomness.sampling, number)
        step = Step(present, simulation.mechanisms[plan.network].noise.steps)
        received, steps = state.slots.server, (step,) * len(plan.layers)
        return Drawn(number, plan, state.weights, received, present, steps)

    @cached_property
    def learners(self) -> Learners:
        """Those who compute: devices alone, or trusted servers with all devices below them."""
        return form_learners(self.network, self.mechanism, self.drawn.present, self.by_device)

    def below(self) -> Tensor:
        """What each block of subtrees adds to the cloud's sum: (n, M)."""
        drawn, learners, simulation = self.drawn, self.learners, self.simulation
        batches = draw_minibatches(
            learners,
            self.mechanism,
            simulation.shards,
            simulation.randomness.sampling,
            drawn.number,
            [step.devices for step in drawn.steps],
            self.means.place.first_record,
        )
        starts = {
            layer: Rows(drawn.model[None], np.zeros(len(of_layer), dtype=np.int64))
            for layer, of_layer in learners.ranges.items()
        }
        anchors, pulled_to_first = dict(starts), self.plan.proximal and self.plan.center == "global"
        for first, last, top in self.plan.stretches:
            # Every learner steps by itself, and what it sends is added up as it comes.
            aggregator, kept = self.aggregator(last), dict[int, list[Tensor]]()
            sums = aggregator.nothing_received(top, len(drawn.model))
            for layer, wave, models in stepped(
                self.means,
                learners.ranges,
                drawn.before,
                (starts, anchors if self.rule.anchored else None),
                is_known(self.rule),
                partial(self.step, first, last, top, batches[first - 1 : last]),
            ):
                nodes = learners.heads[wave.start : wave.stop, 1]
                if layer <= top:
                    kept.setdefault(layer, []).append(models.clone())
                else:
                    self.receive(aggregator, sums, layer, nodes, models)
            # Models travel up, weighed; one noise stands for all that only feed their sum.
            arrived = self.climb(aggregator, sums, last, top)
            own = {layer: torch.cat(parts) for layer, parts in kept.items()}
            if top == 0:
                break
            # Models travel down; whoever is below starts from there.
            downlink = self.mechanism.noise.broadcasts[top]
            self.noise.add(last, "downlink-noise", top, downlink, arrived)
            self.hand_down(top, arrived)
            for layer, of_layer in learners.ranges.items():
                nodes = learners.heads[of_layer.start : of_layer.stop, 1]
                if layer > top:
                    starts[layer] = Rows(arrived, self.tree.ancestors_of(layer, top)[nodes])
                    anchors[layer] = anchors[layer] if pulled_to_first else starts[layer]
                else:
                    starts[layer] = Rows(own[layer], np.arange(len(of_layer)))
        return own.get(0, arrived)  # of the cloud itself, where it is everybody's head

    def at_cloud(self, sums: Tensor) -> Tensor:
        """The model (1, M) that the blocks' sums (n, M) make, with the cloud's noise."""
        last, model = len(self.plan.layers), sums[:1].clone()
        weighed_sum(model, sums[1:])
        self.complete(last, 0, model)
        self.noise_sum(last, 0, model)
        self.noise.add(last, "cloud-noise", 0, self.mechanism.noise.messages[0], model)
        return model

    def step(
        self,
        first: int,
        last: int,
        top: int,
        batches: tuple[Minibatches, ...],
        tile: range,
        models: Tensor,
        anchors: Tensor | None,
    ) -> None:
        """Take the models (n, M) of some learners through steps k = first…last, in place."""
        eta, rules = self.plan.step_size, self.simulation.rules
        descend, noise = partial(self.descend, tile), partial(self.noise_step, last, top, tile)
        steps = StepRules(
            self.rule, eta, self.clip, descend, noise, self.noised_inside, rules.longest(eta)
        )
        local_steps(steps, models, anchors, batches, first)

    def descend(self, tile: range, step: int, batches: Minibatches, models: Tensor) -> None:
        """One clipped gradient step (J eq. 6) of some learners, in place."""
        units = self.learners.units_of(tile)
        owners = self.learners.learner_of_unit[units] - tile.start
        of_tile = Units(owners, self.learners.shares[units])
        backend, eta = self.means.backend, self.plan.step_size
        gradient_step(backend, self.clip, eta, batches.select(units), models, of_tile)

    def noise_step(self, last: int, top: int, tile: range, step: int, models: Tensor) -> None:
        """Add a local step's noise; `noise_sum` adds the last one's above a learner's head."""
        (layer, *_), nodes = self.learners.heads[tile.start : tile.stop].T
        if self.heard or self.noised_inside or layer <= top or step < last:
            scales = self.drawn.steps[step - 1].noise[self.learners.groups[tile.start : tile.stop]]
            self.noise.add(step, "step-noise", int(layer), scales, models, nodes)

    def noise_sum(self, step: int, top: int, models: Tensor) -> None:
        """Add all noise that has only fed the sums (N_top, M), in place, as one Gaussian."""
        if self.mechanism.private:
            noise = None if self.noised_inside else self.drawn.steps[step - 1].noise
            network, present = self.weighing(step), self.drawn.present
            scales = summed_noise(self.mechanism, noise, network, present, top)
            self.noise.add(step, "summed-noise", top, scales, models)

    def receive(
        self,
        aggregator: Aggregator,
        sums: dict[int, Tensor],
        layer: int,
        nodes: np.ndarray,
        models: Tensor,
    ) -> None:
        """Put in the models (n, M) of nodes of a layer: servers' own, devices' weighed."""
        where = torch.as_tensor(nodes, device=models.device)
        if layer < self.tree.depth:
            sums[layer][where] = models
        else:
            aggregator.receive(sums, layer, where, models)

    def climb(self, aggregator: Aggregator, sums: dict[int, Tensor], step: int, top: int) -> Tensor:
        """The models (N_top, M) of a layer, once all that learners send is in the sums."""
        for layer in range(self.tree.depth - 1, top, -1):
            self.complete(step, layer, sums[layer])
            self.send(step, top, layer, sums[layer])
            everyone = torch.arange(len(sums[layer]), device=sums[layer].device)
            aggregator.receive(sums, layer, everyone, sums[layer].clone())
        if top > 0:
            self.complete(step, top, sums[top])
            self.noise_sum(step, top, sums[top])
        return sums[top]

    def hand_down(self, top: int, models: Tensor) -> None:
        """Models (N_top, M) travel down; training ends where one is too long (`TooLongError`)."""
        eta = self.plan.step_size
        covered = self.mechanism.noise.covers
        longest = self.simulation.rules.longest_received(eta)
        refuse_longest(models, longest, lambda: covered(self.tree, top), eta)

    # What only rooms do something with.
    def complete(self, step: int, layer: int, sums: Tensor) -> None:
        """Make sums (N_l, M) of what a layer's servers were sent their models, in place."""

    def send(self, step: int, top: int, layer: int, messages: Tensor) -> None:
        """What nodes of a layer send, (N_l, M), leaves them."""

    def weighing(self, step: int) -> Network:
        """The network with the weights of the aggregation after a step."""
        return self.network

    def aggregator(self, step: int) -> Aggregator:
        """What adds up by these weights."""
        return self.means.aggregators[self.plan.network]

    @classmethod
    def slots_in_use(cls, simulation: Simulation, state: State, workers: Workers) -> Named:
        """The devices' slots at the start of a round, (G, M) each, for steps to write."""
        return {}

    def kept(self, before: Slots) -> Slots:
        """All slots at the end of the round."""
        return before

    @property
    def local(self) -> LocalRule:
        """The algorithm's local step."""
        return self.simulation.rules.local

    @property
    def rule(self) -> LocalRule:
        """The same with the proximal term that is planned."""
        return ProximalStep(self.plan.proximal, self.local) if self.plan.proximal else self.local

    @property
    def noised_inside(self) -> bool:
        """Whether a step is noised within its rule, as what the rule makes of it is not known."""
        return not adds_up(self.simulation.rules.local)

    @cached_property
    def clip(self) -> Clip:
        """What bounds gradients, updates and models."""
        layers = self.simulation.model.layers if self.clipping.by_layer else None
        return Clip(self.clipping, layers, self.simulation.rules.clip_factor)
