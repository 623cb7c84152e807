"""The tree process: J Algorithm 1 on any tree, with noise where the plan says.

Algorithms differ by network, mechanism, rules and schedule, never by code here.

The cloud announces a round, parts of the tree compute it (`m2fdp.core.engine.part_rounds`), and the
cloud adds up what their blocks send. No result depends on who computes which part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import shortfalls
from m2fdp.core.engine.announcements import (
    Announcement,
    announce,
    summed_noise,
    weighed,
)
from m2fdp.core.engine.executor import ExecutionSettings, Executor, build_executor
from m2fdp.core.engine.part_rounds import run_part
from m2fdp.core.engine.process import Ear, Named, Slots, State, Tap
from m2fdp.core.engine.server_sums import weighed_sum
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.engine.stretches import noises_inside
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.processes.elsewhere import Elsewhere, Sites, build_elsewhere
from m2fdp.scaffold.slots import slots_after, slots_in_use

# The noises that learners and servers draw, by the names of `Noise`.
IN_ROUNDS = frozenset({"steps", "past", "messages", "local_messages", "broadcasts"})


@dataclass(frozen=True, eq=False)
class TreeProcess:
    """The rounds of a simulation (a `Process`).

    Attributes:
        elsewhere: who computes the blocks; None = processes of this machine.
    """

    executor: Executor
    elsewhere: Elsewhere | None = None

    @property
    def simulation(self) -> Simulation:
        return self.executor.whole[0].simulation

    @property
    def draws(self) -> frozenset[str]:
        return IN_ROUNDS | ({"clients"} if self.simulation.splits is not None else set())

    def start(self) -> State:
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
        if isinstance(tap, Ear):
            tap.inside("cloud", 0, np.zeros(1, dtype=np.int64), model)
        after = slots_after(simulation, plan, announced.present, slots, state.slots)
        weights, server = simulation.rules.server.step(state.weights, model[0], after.server)
        return State(announced.number, weights, replace(after, server=server))

    def _share(self, announced: Announcement, slots: Named) -> None:
        """Have all blocks computed, by some processes."""
        if self.elsewhere is not None:
            self.elsewhere.compute(announced, slots)
            return
        simulation, executor = self.simulation, self.executor
        steps = [mechanism.noise.steps for mechanism in simulation.mechanisms]
        fixed = (self, executor, executor.sums, *slots.values(), *steps)
        kind = f"{len(announced.plan.layers)} steps"
        work = partial(_run_blocks, self, announced, slots)
        executor.workers.share(kind, executor.costs * len(announced.plan.layers), work, fixed=fixed)


def build_process(
    simulation: Simulation, settings: ExecutionSettings | None = None, sites: Sites | None = None
) -> TreeProcess:
    """The rounds of a simulation, with the means to run them.

    Args:
        sites: who computes the blocks; None = processes of this machine.

    Raises:
        InputError: there are sites, and the simulation can't be cut into blocks.
    """
    executor = build_executor(simulation, settings or ExecutionSettings())
    return TreeProcess(executor, None if sites is None else build_elsewhere(executor, sites))


def _run_blocks(process: TreeProcess, announced: Announcement, slots: Named, blocks: range) -> None:
    """Compute some blocks, and leave what they add to the cloud's sum and what learners keep in
    memory that processes share."""
    part, means = process.executor.part(blocks)
    rows = torch.as_tensor(part.groups)
    part_slots = {name: of_all[rows] for name, of_all in slots.items()}
    sums = run_part(part, means, announced, part_slots, None)
    process.executor.sums[blocks.start : blocks.stop] = sums
    for name, of_all in slots.items():
        of_all[rows] = part_slots[name]


def _at_cloud(simulation: Simulation, announced: Announcement, sums: Tensor) -> Tensor:
    """The model (1, M) that a global aggregation ends in, from the blocks' sums (n, M)."""
    which, last = announced.plan.network, len(announced.plan.layers)
    mechanism, present = simulation.mechanisms[which], announced.present
    model = torch.zeros_like(sums[:1])
    weighed_sum(model, sums)
    network = weighed(simulation.networks[which], announced.weights)
    alive = announced.alive.get(last, {})
    weighing = network.without(alive) if alive else network
    by_chance = announced.weights is not None
    lacking = shortfalls(weighing, mechanism.lock_step, present, by_chance, alive, sums)
    if lacking is not None and lacking[0] is not None:
        model.addcmul_(lacking[0], announced.model[None])
    if mechanism.private:
        noised_inside = noises_inside(simulation.rules.local, mechanism.noise)
        steps = None if noised_inside else announced.steps[last - 1].noise
        scales = summed_noise(mechanism, steps, weighing, present, 0)
        announced.noise(simulation).add(last, "summed-noise", 0, scales, model)
    return model
