"""Rounds whose blocks of subtrees several processes compute, of this machine or of others."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.execution import Means, build_means
from m2fdp.core.engine.process import shared_tensor
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.rules import Named
from m2fdp.core.engine.seams import Drawn
from m2fdp.core.engine.tree_process import OneProcess, TreeProcess
from m2fdp.core.errors import InputError
from m2fdp.processes.elsewhere import Elsewhere, Sites
from m2fdp.processes.subtrees import Part, part_of
from m2fdp.processes.workers import Workers

# A step of a learner costs as much as so many records, whatever records it uses.
_STEP_COST = 8.0


@dataclass(eq=False)
class Blocks:
    """Who computes the blocks of a process (an `Executor`)."""

    process: TreeProcess  # the rounds as one process computes them
    workers: Workers  # processes that share the blocks
    # float64 (n,), what a round of each block costs about, in records a local step
    costs: np.ndarray
    sums: Tensor  # (n, M), what each block adds to the cloud's sum, in memory that processes share
    elsewhere: Elsewhere | None = None  # others that compute the blocks; None = the workers
    # those that this process computes, by their blocks
    parts: dict[range, tuple[Part, Means]] = field(default_factory=dict)

    def below(self, whole: Round) -> Tensor:
        """See `Executor.below`."""
        drawn, slots = whole.drawn, whole.slots
        if self.elsewhere is not None:
            self.elsewhere.compute(drawn, slots, self.sums)
            return self.sums
        steps = [mechanism.noise.steps for mechanism in self.process.simulation.mechanisms]
        fixed: Sequence[object] = (self, self.sums, *slots.values(), *steps)
        number, work = len(drawn.plan.layers), partial(self._compute, drawn, slots)
        self.workers.share(f"{number} steps", self.costs * number, work, fixed=fixed)
        return self.sums

    def part(self, blocks: range) -> tuple[Part, Means]:
        """Some blocks, and what they are computed by."""
        if blocks not in self.parts:
            part = part_of(self.process.simulation, blocks)
            means = build_means(part.simulation, part.place, self.process.settings)
            self.parts[blocks] = part, means
        return self.parts[blocks]

    def _compute(self, drawn: Drawn, slots: Named, blocks: range) -> None:
        """Compute some blocks, and leave what they add to the cloud's sum and what learners keep in
        memory that processes share."""
        part, means = self.part(blocks)
        rows = torch.as_tensor(part.groups)
        of_part = {name: of_all[rows] for name, of_all in slots.items()}
        current = self.process.kind(part.simulation, means, part.of(drawn), of_part)
        self.sums[blocks.start : blocks.stop] = current.below()
        for name, of_all in slots.items():
            of_all[rows] = of_part[name]


def shared(process: TreeProcess, sites: Sites | None) -> TreeProcess:
    """The rounds, computed by other processes, too: those of this machine, or `sites`. An
    `InputError` where there are sites, and the simulation can't be cut into blocks."""
    simulation, settings = process.simulation, process.settings
    shards, place = simulation.shards, process.means.place
    device = shards.features.device
    workers = Workers(settings.workers if device.type == "cpu" else 1)
    if not process.in_blocks:
        if sites is not None:
            problem = (
                "computes subtrees apart, and here the cloud has part in every step; use local"
            )
            raise InputError("execution.engine", "ray", problem)
        return replace(process, executor=OneProcess(workers))
    blocks = place.blocks[simulation.networks[0].tree.ancestors[1]]
    costs = np.bincount(blocks, weights=_STEP_COST + shards.rates * shards.sizes)
    n_parameters, dtype = simulation.model.n_parameters, shards.features.dtype
    sums = shared_tensor(len(costs), n_parameters, dtype).to(device)
    elsewhere = None if sites is None else Elsewhere(process, sites, costs)
    return replace(process, executor=Blocks(process, workers, costs, sums, elsewhere))
