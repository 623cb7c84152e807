"""What a round knows while it is computed, and where rooms do something their own way.

A room brings a subclass of `m2fdp.core.engine.round.Round` (`Room.rounds`). It overrides methods
and calls `super()`, so that several rooms can be in one round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import Aggregator
from m2fdp.core.engine.execution import Means
from m2fdp.core.engine.learner import Clip
from m2fdp.core.engine.minibatches import Learners, Minibatches, draw_minibatches, form_learners
from m2fdp.core.engine.noise import RoundNoise
from m2fdp.core.engine.process import Simulation, Slots, State, Workers
from m2fdp.core.engine.rules import LocalRule, Named, ProximalStep, adds_up
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network


@dataclass(frozen=True, eq=False)
class Step:
    """What one local step adds up."""

    devices: np.ndarray  # bool (N_L,), the devices with a gradient that counts
    noise: np.ndarray  # float64 (G,), the deviation of each lock-step group's, in units of eta
    # {layer l: bool (N_l,), the nodes in sums that lose members}.
    members: Mapping[int, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Drawn:
    """What is drawn of round t = `number` before anybody computes."""

    number: int
    plan: RoundPlan
    model: Tensor  # (M,), the global model that the round begins with
    received: Named  # the server's slots, (M,) each
    present: np.ndarray  # bool (N_L,), the devices that take part
    steps: tuple[Step, ...]  # k = 1…K
    # {step that an aggregation follows: rho}, where rho is not the network's.
    weights: Mapping[int, tuple[np.ndarray, ...]] = field(default_factory=dict)
    # {head layer: learners of the whole before those of a part}.
    before: Mapping[int, int] = field(default_factory=dict)


class Stretch(NamedTuple):
    """Local steps k = first…last, with their minibatches; then models travel up to layer `top`."""

    first: int
    last: int
    top: int
    batches: tuple[Minibatches, ...]


class Seams:
    """A round of a simulation, or of some subtrees; steps write `slots`, (G, M) each, in place."""

    # The noises that are drawn, by the names of `Noise`.
    draws = frozenset({"steps", "messages", "local_messages", "broadcasts"})
    in_blocks = True  # subtrees can be computed apart
    heard = False  # somebody listens, so every message has a noise of its own
    by_device = False  # each device of a lock-step group has a gradient of its own

    def __init__(
        self, simulation: Simulation, means: Means, drawn: Drawn, slots: Named | None = None
    ) -> None:
        self.simulation, self.means, self.drawn, self.slots = simulation, means, drawn, slots or {}
        self.plan, which = drawn.plan, drawn.plan.network
        self.network, self.mechanism = simulation.networks[which], simulation.mechanisms[which]
        self.tree, self.eta = self.network.tree, self.plan.step_size
        unit, streams = self.mechanism.noise.scale(self.eta), simulation.randomness.noise
        self.noise = RoundNoise(streams, drawn.number, unit, means.place.first)

    @cached_property
    def learners(self) -> Learners:
        return form_learners(self.network, self.mechanism, self.drawn.present, self.by_device)

    def minibatches(self) -> tuple[Minibatches, ...]:
        """The records of each local step."""
        drawn, shards, draws = self.drawn, self.simulation.shards, self.simulation.model.draws
        streams, first_record = self.simulation.randomness.sampling, self.means.place.first_record
        who, counting = (self.learners, self.mechanism), [step.devices for step in drawn.steps]
        return draw_minibatches(*who, shards, streams, drawn.number, counting, first_record, draws)

    @cached_property
    def clip(self) -> Clip:
        """Bounds of gradients, updates and models."""
        clipping = self.mechanism.clipping
        layers = self.simulation.model.layers if clipping.by_layer else None
        return Clip(clipping, layers, self.simulation.rules.clip_factor)

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
        """Whether a step is noised within its rule, which may do anything with the gradient."""
        return not adds_up(self.simulation.rules.local)

    def weighing(self, step: int) -> Network:
        """The network with the weights of the aggregation after a step."""
        return self.network

    def aggregator(self, step: int) -> Aggregator:
        return self.means.aggregators[self.plan.network]

    def receive(
        self,
        aggregator: Aggregator,
        sums: dict[int, Tensor],
        layer: int,
        nodes: np.ndarray,
        models: Tensor,
    ) -> None:
        """Add the models (n, M) of nodes of a layer to sums, those of devices weighed."""
        where = torch.as_tensor(nodes, device=models.device)
        if layer < self.tree.depth:
            sums[layer][where] = models
        else:
            aggregator.receive(sums, layer, where, models)

    def complete(self, step: int, layer: int, sums: Tensor) -> None:
        """Make the models of a layer's servers from sums (N_l, M), in place; here it is done."""

    def send(self, step: int, top: int, layer: int, messages: Tensor) -> None:
        """Messages (N_l, M) of a layer's nodes leave them for layer `top`; only rooms act here."""

    @classmethod
    def slots_in_use(cls, simulation: Simulation, state: State, workers: Workers) -> Named:
        """The devices' slots at the start of a round, (G, M) each, for steps to write."""
        return {}

    def kept(self, before: Slots) -> Slots:
        """All slots at the end of the round."""
        return before
