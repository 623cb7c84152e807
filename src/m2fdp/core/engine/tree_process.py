"""The rounds of a simulation, one after the other, heard by somebody or not."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import Aggregator, build_aggregator
from m2fdp.core.engine.execution import ExecutionSettings, Means, Place, build_means
from m2fdp.core.engine.minibatches import minibatch_law
from m2fdp.core.engine.process import (
    Alone,
    Ear,
    Execution,
    Simulation,
    Slots,
    State,
    Tap,
    Workers,
)
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.seams import Stretch
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

    def round(self, state: State, plan: RoundPlan, tap: Tap | None = None) -> State:
        """One round of J Alg. 1; `tap` hears messages up, and broadcasts of local aggregations."""
        simulation, kind, below = self.simulation, self.kind, self.executor.below
        if tap is not None:
            kind, below = heard_by(kind, tap), OneProcess().below
        drawn = kind.draw(simulation, plan, state)
        slots = kind.slots_in_use(simulation, state, self.executor.workers)
        whole = kind(simulation, self.means, drawn, slots)
        model = whole.at_cloud(below(whole))
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


class Heard(Round):
    """A round of the whole that `tap` hears: every message has a noise of its own.

    Where nobody listens, noises that only feed a sum are drawn as one. So the two rounds are equal
    in distribution, not to the bit.
    """

    heard = True
    tap: Tap
    sent: Tensor | None = None  # (N_L, M), what devices send

    def aggregator(self, step: int) -> Aggregator:
        """The cloud adds up messages as they come, not by blocks."""
        blocks = np.zeros(self.tree.n_nodes(1), dtype=np.int64)
        return build_aggregator(self.weighing(step), self.simulation.shards.features, blocks)

    def noise_step(self, stretch: Stretch, tile: range, step: int, models: Tensor) -> None:
        super().noise_step(stretch, tile, step, models)
        if isinstance(self.tap, Ear) and self.mechanism.noise.in_steps:
            (layer, *_), nodes = self.learners.heads[tile.start : tile.stop].T
            self.tap.inside("step", int(layer), nodes, models)

    def noise_sum(self, step: int, top: int, models: Tensor) -> None:
        """Nothing: each message has its own."""

    def receive(
        self,
        aggregator: Aggregator,
        sums: dict[int, Tensor],
        layer: int,
        nodes: np.ndarray,
        models: Tensor,
    ) -> None:
        if layer < self.tree.depth:
            super().receive(aggregator, sums, layer, nodes, models)
            return
        if self.sent is None:
            self.sent = models.new_zeros(self.tree.n_devices, models.shape[1])
        self.sent[nodes] = models

    def climb(self, aggregator: Aggregator, sums: dict[int, Tensor], step: int, top: int) -> Tensor:
        if self.sent is not None:
            devices, messages, self.sent = self.tree.depth, self.sent, None
            self.send(step, top, devices, messages)
            of_layer = self.learners.ranges[devices]
            nodes = self.learners.heads[of_layer.start : of_layer.stop, 1]
            super().receive(aggregator, sums, devices, nodes, messages[nodes])
        return super().climb(aggregator, sums, step, top)

    def send(self, step: int, top: int, layer: int, messages: Tensor) -> None:
        """Noise what nodes of a layer send, (N_l, M), in place, and tell it."""
        super().send(step, top, layer, messages)
        messages.add_(self.message_noise(step, top, layer, messages))
        self.tap("up", layer, messages)

    def message_noise(self, step: int, top: int, layer: int, messages: Tensor) -> Tensor:
        """What nodes of a layer add to what they send, (N_l, M)."""
        noise, scales = torch.zeros_like(messages), self.mechanism.noise.sent(top)[layer]
        sends = self.drawn.present if layer == self.tree.depth else True
        self.noise.add(step, "message-noise", layer, scales * sends, noise)
        return noise

    def hand_down(self, step: int, top: int, models: Tensor) -> None:
        super().hand_down(step, top, models)
        if top > 0:
            self.tap("down", top, models)
        elif isinstance(self.tap, Ear):
            self.tap.inside("cloud", 0, np.zeros(1, dtype=np.int64), models)

    def at_cloud(self, sums: Tensor) -> Tensor:
        model = super().at_cloud(sums)
        if isinstance(self.tap, Ear):
            self.tap.inside("cloud", 0, np.zeros(1, dtype=np.int64), model)
        return model


def heard_by(kind: type[Round], tap: Tap) -> type[Round]:
    """The rounds, heard by a tap."""
    return type("HeardRound", (Heard, kind), {"tap": staticmethod(tap)})
