"""The rounds of a simulation, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from m2fdp.core.engine.execution import ExecutionSettings, Means, Place, build_means
from m2fdp.core.engine.minibatches import minibatch_law
from m2fdp.core.engine.process import Alone, Execution, Simulation, Slots, State, Workers
from m2fdp.core.engine.round import Round
from m2fdp.core.rooms import brought
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.tree import Tree

# Subtrees in a block, or devices below a cloud without servers. Where there are no more, each is a
# block, and messages are added as they come.
_SERVERS, _DEVICES = 16, 64


class Executor(Execution, Protocol):
    """The processes that compute rounds."""

    def below(self, whole: Round) -> Tensor:
        """`Round.below` of the whole."""


@dataclass(frozen=True, eq=False)
class OneProcess:
    """This process computes all (an `Executor`)."""

    workers: Workers = field(default_factory=Alone)

    def below(self, whole: Round) -> Tensor:
        return whole.below()


@dataclass(frozen=True, eq=False)
class TreeProcess:
    """The rounds of a simulation (a `Process`), each of a kind."""

    simulation: Simulation
    settings: ExecutionSettings
    means: Means
    kind: type[Round]
    executor: Executor = field(default_factory=OneProcess)

    @property
    def draws(self) -> frozenset[str]:
        return self.kind.draws

    @property
    def in_blocks(self) -> bool:
        """Whether blocks of subtrees can be computed apart."""
        mechanisms = self.simulation.mechanisms
        steps_at_cloud = any((of.lock_step.nodes[:, 0] == 0).any() for of in mechanisms)
        # Kernels for several learners at once round by which learners they are.
        return self.means.backend.group == 1 and self.kind.in_blocks and not steps_at_cloud

    def start(self) -> State:
        weights = self.simulation.model.initial_vector().to(self.simulation.shards.features)
        return State(0, weights, Slots(self.simulation.rules.server.start(weights)))

    def round(self, state: State, plan: RoundPlan) -> State:
        """One round of J Alg. 1."""
        simulation, kind = self.simulation, self.kind
        drawn = kind.draw(simulation, plan, state)
        slots = kind.slots_in_use(simulation, state, self.executor.workers)
        whole = kind(simulation, self.means, drawn, slots)
        model = whole.at_cloud(self.executor.below(whole))
        after = whole.kept(state.slots)
        weights, server = simulation.rules.server.step(state.weights, model[0], after.server)
        return State(drawn.number, weights, replace(after, server=server))


def build_process(
    simulation: Simulation, settings: ExecutionSettings | None = None, sites: Any = None
) -> TreeProcess:
    """The rounds of a simulation, computed by sites; None = processes of this machine.

    Raises:
        InputError: there are sites, and the simulation can't be cut into blocks.
    """
    settings, tree = settings or ExecutionSettings(), simulation.networks[0].tree
    law = minibatch_law(simulation.mechanisms[0], simulation.shards)
    together = np.zeros(tree.n_nodes(1), dtype=np.int64)
    place = Place((0,) * (tree.depth + 1), together, law)
    means = build_means(simulation, place, settings)
    process = TreeProcess(simulation, settings, means, kind_of(simulation, settings))
    if process.in_blocks:
        place = replace(place, blocks=blocks_of(tree))
        process = replace(process, means=build_means(simulation, place, settings))
    for executed in brought("executed"):
        process = executed(process, sites)
    return process


def kind_of(simulation: Simulation, settings: ExecutionSettings) -> type[Round]:
    """The kind of a simulation's rounds."""
    kinds = (way(simulation, settings) for way in brought("rounds"))
    return round_of([kind for kind in kinds if kind is not None])


def round_of(kinds: Sequence[type[Round]]) -> type[Round]:
    """A round with the rooms' kinds around it, a later kind around an earlier one."""
    kinds = tuple(kinds)
    return type("RoomsRound", (*reversed(kinds), Round), {"kinds": kinds}) if kinds else Round


def blocks_of(tree: Tree) -> np.ndarray:
    """The block that each node of layer 1 belongs to, from 0 on: int64 (N_1,)."""
    children, size = np.arange(tree.n_nodes(1)), _DEVICES if tree.depth == 1 else _SERVERS
    return children // size if len(children) > size else children
