"""Rounds with slots that local rules keep for every learner, and with learners' reports."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.execution import ExecutionSettings
from m2fdp.core.engine.process import Simulation, Slots, State, Workers
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.rules import KeepingRule, LocalRule, Named, ServerRule, keeping
from m2fdp.core.engine.seams import Stretch
from m2fdp.core.privacy.mechanisms import LockStep
from m2fdp.core.topology.network import Network


class HearingRule(ServerRule, Protocol):
    """A server rule for a local rule whose learners report (`KeepingRule`)."""

    def hear(self, slots: Named, reported: Named) -> Named:
        """The slots after the learners' reports, (M,) each: sums over learners who take part, by
        their weight in the global model. `step` comes next."""


class Keeping(Round):
    """A round whose local rule keeps slots."""

    slots_of_tile: Mapping[str, Tensor] = {}

    @classmethod
    def slots_in_use(cls, simulation: Simulation, state: State, workers: Workers) -> Named:
        """The slots; on a CPU in memory that processes share."""
        rule = cast(KeepingRule, keeping(simulation.rules.local))
        groups, weights = len(simulation.mechanisms[0].lock_step.nodes), state.weights
        slots: dict[str, Tensor] = {}
        for name, first in rule.first(weights).items():
            begun = state.slots.device.get(name, first.expand(groups, -1))
            if weights.device.type == "cpu":
                room = workers.room(f"slot {name}", groups, len(weights), weights.dtype)
                slots[name] = room.copy_(begun)
            else:
                slots[name] = begun.clone()
        return slots

    def step(self, stretch: Stretch, tile: range, models: Tensor, anchors: Tensor | None) -> None:
        groups = self.learners.groups[tile.start : tile.stop]
        rows = torch.as_tensor(groups, device=models.device)
        self.slots_of_tile = {name: values[rows] for name, values in self.slots.items()}
        super().step(stretch, tile, models, anchors)
        for name, values in self.slots_of_tile.items():
            self.slots[name][rows] = values
        self.slots_of_tile = {}

    @property
    def local(self) -> LocalRule:
        rule = super().local
        if not self.slots_of_tile:
            return rule
        return cast(KeepingRule, rule).of(self.slots_of_tile, self.drawn.received)

    def kept(self, before: Slots) -> Slots:
        """All slots after the learners' reports, which travel with the models by the same weights;
        absent learners add nothing."""
        rule = cast(KeepingRule, super().local)
        lock_step, groups = self.mechanism.lock_step, self.learners.groups
        rows = torch.as_tensor(groups, device=self.drawn.model.device)
        in_use = {name: slots[rows] for name, slots in self.slots.items()}
        new_slots, reported = rule.report(in_use, len(self.plan.layers), self.plan.step_size)
        device = {
            name: self.slots[name].clone().index_copy_(0, rows, new_slots[name])
            for name in new_slots
        }
        shares = _shares(replace(self.network, participants=None), lock_step)[groups]
        sums = {
            name: torch.as_tensor(shares, dtype=vectors.dtype, device=vectors.device) @ vectors
            for name, vectors in reported.items()
        }
        server = cast(HearingRule, self.simulation.rules.server)
        return Slots(server.hear(before.server, sums) if sums else before.server, device)


def with_slots(simulation: Simulation, settings: ExecutionSettings) -> type[Round] | None:
    """The rounds of a simulation whose local rule keeps slots."""
    return None if keeping(simulation.rules.local) is None else Keeping


def _shares(network: Network, lock_step: LockStep) -> np.ndarray:
    """The weight of each group's model in the global one: float64 (G,)."""
    layers, nodes = lock_step.nodes.T
    shares = np.empty(len(nodes))
    for layer in np.unique(layers):
        in_layer = layers == layer
        shares[in_layer] = network.shares(int(layer), 0)[nodes[in_layer]]
    return shares
