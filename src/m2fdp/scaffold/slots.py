"""What a local rule keeps of every learner from round to round, and what learners report of it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.learners import learning_groups
from m2fdp.core.engine.local_rules import keeping
from m2fdp.core.engine.process import Named, Slots, State
from m2fdp.core.engine.server_rules import HearingRule
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.privacy.mechanisms import LockStep
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network
from m2fdp.processes.workers import Workers


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


def slots_after(
    simulation: Simulation, plan: RoundPlan, present: np.ndarray, written: Named, before: Slots
) -> Slots:
    """All slots at the end of a round, once the cloud has heard what learners report.

    Reports travel with the models, by the same weights, those of who stays away being nothing.

    Args:
        present: bool (N_L,), the devices that took part.
        written: those of the devices as their steps left them.
        before: all of them at the start of the round.
    """
    rule, lock_step = keeping(simulation.rules.local), simulation.mechanisms[plan.network].lock_step
    if rule is None:
        return before
    network = simulation.networks[plan.network]
    groups = learning_groups(lock_step, present, network.tree.depth)
    rows = torch.as_tensor(groups, device=simulation.shards.features.device)
    in_use = {name: slots[rows] for name, slots in written.items()}
    new_slots, reported = rule.report(in_use, len(plan.layers), plan.step_size)
    device = {
        name: written[name].clone().index_copy_(0, rows, new_slots[name]) for name in new_slots
    }
    shares = _shares(replace(network, participants=None), lock_step)[groups]
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
