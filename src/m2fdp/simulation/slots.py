"""What a local rule keeps of every learner from round to round, and what learners report of it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from m2fdp.privacy.mechanisms import LockStep
from m2fdp.simulation.local_rules import keeping
from m2fdp.simulation.process import Named, Slots, State
from m2fdp.simulation.server_rules import HearingRule
from m2fdp.simulation.simulation import Simulation
from m2fdp.simulation.stretches import Round
from m2fdp.simulation.workers import Workers
from m2fdp.topology.network import Network


def slots_in_use(simulation: Simulation, workers: Workers, state: State) -> Named:
    """The devices' slots at the start of a round, (G, M) each, for steps to write: on a CPU in
    memory that is shared with other processes."""
    rule = keeping(simulation.rules.local)
    if rule is None:
        return {}
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


def slots_after(current: Round, before: Slots) -> Slots:
    """All slots at the end of a round, once the cloud has heard what learners report.

    Reports travel with the models, by the same weights, those of who stays away being nothing.
    """
    simulation, plan = current.simulation, current.plan
    rule, groups = keeping(simulation.rules.local), current.learners.groups
    if rule is None:
        return before
    rows = torch.as_tensor(groups, device=simulation.shards.features.device)
    in_use = {name: slots[rows] for name, slots in current.slots.items()}
    new_slots, reported = rule.report(in_use, len(plan.layers), plan.step_size)
    device = {
        name: current.slots[name].clone().index_copy_(0, rows, new_slots[name])
        for name in new_slots
    }
    everybody = replace(current.simulation.networks[plan.network], participants=None)
    shares = _shares(everybody, current.mechanism.lock_step)[groups]
    sums = {
        name: torch.as_tensor(shares, dtype=vectors.dtype, device=vectors.device) @ vectors
        for name, vectors in reported.items()
    }
    server = cast(HearingRule, simulation.rules.server)
    return Slots(server.hear(before.server, sums) if sums else before.server, device)


def _shares(network: Network, lock_step: LockStep) -> np.ndarray:
    """The weight of each group's model in the global one: float64 (G,)."""
    layers, nodes = lock_step.nodes.T
    shares = np.empty(len(nodes))
    for layer in np.unique(layers):
        in_layer = layers == layer
        shares[in_layer] = network.shares(int(layer), 0)[nodes[in_layer]]
    return shares
