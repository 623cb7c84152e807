"""Rounds in one process that make the bytes that real nodes make: what a rehearsal is held to."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2fdp.adversaries.heard import Heard, heard_by
from m2fdp.chance.updates import ByUpdates
from m2fdp.core.config import Config
from m2fdp.core.engine.aggregation import weighed_sum
from m2fdp.core.engine.learner import Units, unit_gradients
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.process import Process, Simulation, State
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.seams import Drawn
from m2fdp.core.engine.tree_process import TreeProcess, round_of
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import readers
from m2fdp.deployment.config import DeploymentConfig
from m2fdp.experiment import Experiment
from m2fdp.secure_aggregation.model_sums import group_terms, model_spread
from m2fdp.secure_aggregation.protocol import secure_sum
from m2fdp.secure_aggregation.terms import Input


class ByDevice(Round):
    """Servers add up a gradient of every device on its way to the head of its lock-step group."""

    by_device = True

    def descend(self, tile: range, step: int, batches: Minibatches, models: Tensor) -> None:
        learners, units = self.learners, self.learners.units_of(tile)
        (layer, *_), nodes = learners.heads[tile.start : tile.stop].T
        if layer == self.tree.depth:
            super().descend(tile, step, batches, models)
            return
        of_tile = Units(learners.learner_of_unit[units] - tile.start, learners.shares[units])
        gradients = unit_gradients(
            self.means.backend, self.clip, batches.select(units), models, of_tile
        )
        vectors = models.new_zeros(len(learners.present), models.shape[1])
        vectors[torch.as_tensor(learners.device_of_unit[units])] = -gradients
        for at in range(self.tree.depth, int(layer), -1):
            sums = vectors.new_zeros(self.tree.n_nodes(at - 1), vectors.shape[1])
            weighed_sum(sums, vectors, parents=torch.as_tensor(self.tree.parents[at - 1]))
            vectors = sums
        models.add_(vectors[torch.as_tensor(nodes)], alpha=self.plan.step_size)


class Masked(ByUpdates):
    """Sums of models are sums on a grid, of the updates that members mask."""

    sums: Mapping[int, Tensor] = {}  # by layer of the readers

    @classmethod
    def draw(cls, simulation: Simulation, plan: RoundPlan, state: State) -> Drawn:
        """What is masked weighs nothing on the way of other messages."""
        drawn, network = super().draw(simulation, plan, state), simulation.networks[plan.network]
        weights = tuple(
            of_layer * (layer not in network.sums.layers)
            for layer, of_layer in enumerate(network.weights, start=1)
        )
        return replace(drawn, weights={last: weights for _, last, _ in plan.stretches})

    @property
    def missed(self) -> frozenset[int]:
        return super().missed | self.network.sums.layers

    def send(self, step: int, top: int, layer: int, messages: Tensor) -> None:
        if layer == self.tree.depth:  # an aggregation begins
            self.sums = {}
        if layer in self.network.sums.layers and isinstance(self, Heard):
            noise = self.message_noise(step, top, layer, messages)
            self.sums = {**self.sums, layer - 1: self._masked(step, layer, messages, noise)}
        super().send(step, top, layer, messages)

    def complete(self, step: int, layer: int, sums: Tensor) -> None:
        super().complete(step, layer, sums)
        if layer in self.sums:
            sums.add_(self.sums[layer])

    def _masked(self, step: int, layer: int, models: Tensor, noise: Tensor) -> Tensor:
        """The weighed sums (N_{layer-1}, M) of the updates of a layer's nodes."""
        network, tree, rates = self.network, self.tree, self.simulation.shards.rates
        of_node = readers(tree, network.sums, layer)
        weights = torch.as_tensor(network.shares(layer, layer - 1)).to(models)[:, None]
        received = self.references.of(layer - 1)[torch.as_tensor(of_node)]
        put_in, drawn = ((models - received) * weights).numpy(), (noise * weights).numpy()
        size = models.shape[1]
        spread = model_spread(network, self.mechanism, self.plan, rates, layer, size)
        draws, result = spread.deviations > 0, models.new_zeros(tree.n_nodes(layer - 1), size)
        for reader in range(len(result)):
            members = np.flatnonzero((of_node == reader) & self._sends(layer))
            if len(members) < 2:
                continue
            label = f"round {self.drawn.number}, step {step}"
            terms = group_terms(network, layer, members, spread, size, label)
            inputs = [Input(put_in[n], drawn[n] if draws[n] else None) for n in members.tolist()]
            result[reader] = torch.as_tensor(secure_sum(terms, inputs).values).to(models)
        return result

    def _sends(self, layer: int) -> np.ndarray:
        """Which nodes of a layer send models: no node below them learns with one above."""
        lock_step, sends = self.mechanism.lock_step, np.zeros(self.tree.n_nodes(layer), dtype=bool)
        below = lock_step.nodes[lock_step.group_of, 0] >= layer
        sends[self.tree.ancestors[layer][below]] = True
        return sends


def simulated(config: Config) -> Config:
    """The configuration of the same run in the simulator."""
    return config.model_copy(update={"deployment": DeploymentConfig()})


def reference(experiment: Experiment) -> tuple[Tensor, pd.DataFrame]:
    """The simulator's weights (M,) and its ledger: a rehearsal ends in them, to the byte.

    Every message has a noise of its own, and servers add up gradients by device.
    """
    process = heard_by(as_nodes(experiment.process()), lambda direction, layer, models: None)
    state = process.start()
    try:
        for plan in experiment.run_plan.rounds[: experiment.calibration.affordable_rounds]:
            state = process.round(state, plan)
    finally:
        process.executor.workers.end()
    return state.weights, experiment.ledger()


def as_nodes(process: Process) -> TreeProcess:
    """The rounds, as real nodes compute them."""
    assert isinstance(process, TreeProcess)  # a plan of nodes has no split models
    masked = any(network.sums.layers for network in process.simulation.networks)
    kinds = (*process.kind.kinds, ByDevice, *([Masked] if masked else []))
    return replace(process, kind=round_of(kinds))
