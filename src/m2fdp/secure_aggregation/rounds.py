"""Rounds in which messages are read as sums: steps that end in one, and sums that lose members.

Lock-step groups below a node that reads only the sum of what its members send add up their
gradients, and their parts of shared noise, at every local step.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from m2fdp.chance.updates import ByUpdates
from m2fdp.core.engine.execution import ExecutionSettings
from m2fdp.core.engine.noise import add_noise
from m2fdp.core.engine.process import Simulation, State
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.seams import Drawn, Step, Stretch
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network
from m2fdp.secure_aggregation.survivors import devices_in, draw_survivors, step_in_sums


class StepSums(Round):
    """Every local step ends in sums, of those who do not fall silent in it."""

    @classmethod
    def draw(cls, simulation: Simulation, plan: RoundPlan, state: State) -> Drawn:
        drawn = super().draw(simulation, plan, state)
        network, mechanism = simulation.networks[plan.network], simulation.mechanisms[plan.network]
        if not step_in_sums(network, mechanism):
            return drawn
        steps = range(1, len(plan.layers) + 1 if network.sums.dropout else 2)
        summed = [_step(simulation, plan, drawn, step) for step in steps]
        return replace(drawn, steps=tuple(summed * (len(plan.layers) // len(summed))))

    def noise_step(self, stretch: Stretch, tile: range, step: int, models: Tensor) -> None:
        """Where somebody listens, every head draws its own noise, and groups add it up."""
        current = self.drawn.steps[step - 1]
        if not (self.heard and current.members):
            super().noise_step(stretch, tile, step, models)
            return
        (layer, *_), nodes = self.learners.heads[tile.start : tile.stop].T
        noise = self._summed_noise(step, int(layer), models)
        rows = torch.as_tensor(nodes, device=models.device)
        models.add_(noise[rows], alpha=self.plan.step_size)

    def _summed_noise(self, step: int, top: int, models: Tensor) -> Tensor:
        """The noise of one local step, over eta, as it gets to readers of a layer: (N_top, M)."""
        current, tree = self.drawn.steps[step - 1], self.tree

        def drawn(layer: int) -> Tensor:
            """What heads of a layer draw, (N_l, M)."""
            members = current.members.get(layer, np.ones(tree.n_nodes(layer), dtype=bool))
            if layer == tree.depth:
                members = members & current.devices
            share = self.network.shares(layer, top)
            deviations = self.mechanism.noise.heads[layer] * share * members
            rows = np.flatnonzero(deviations)
            noise = models.new_zeros(len(members), models.shape[1])
            at = "step-noise", self.drawn.number, step, layer
            stream = self.simulation.randomness.noise.generator(*at)
            add_noise(noise, rows, deviations[rows], stream, rows)
            return noise

        summed = models.new_zeros(tree.n_devices, models.shape[1])
        for layer in range(tree.depth, top, -1):
            parents = torch.as_tensor(tree.parents[layer - 1], device=models.device)
            sent = summed + drawn(layer)
            summed = sent.new_zeros(tree.n_nodes(layer - 1), sent.shape[1])
            summed.index_add_(0, parents, sent)
        return summed + drawn(top)  # of those who are heads themselves


class LostSums(ByUpdates):
    """Members fall silent in the sums of models, and groups that lose too many are lost."""

    @classmethod
    def draw(cls, simulation: Simulation, plan: RoundPlan, state: State) -> Drawn:
        drawn = super().draw(simulation, plan, state)
        network, weights = simulation.networks[plan.network], dict(drawn.weights)
        for _, last, _ in plan.stretches:
            alive = _alive(simulation, plan, drawn, last)
            rho = list(weights.get(last, network.weights))
            for layer, members in alive.items():
                rho[layer - 1] = rho[layer - 1] * members
            weights[last] = tuple(rho)
        return replace(drawn, weights=weights)

    @property
    def missed(self) -> frozenset[int]:
        return super().missed | self.network.sums.layers


def steps_in_sums(simulation: Simulation, settings: ExecutionSettings) -> type[Round] | None:
    """The rounds of a simulation whose steps end in sums."""
    pairs = zip(simulation.networks, simulation.mechanisms, strict=True)
    return StepSums if any(step_in_sums(*pair) for pair in pairs) else None


def sums_that_lose(simulation: Simulation, settings: ExecutionSettings) -> type[Round] | None:
    """The rounds of a simulation in whose sums members fall silent."""
    silent = any(network.sums.layers and network.sums.dropout for network in simulation.networks)
    return LostSums if silent else None


def _alive(
    simulation: Simulation, plan: RoundPlan, drawn: Drawn, step: int
) -> dict[int, np.ndarray]:
    network, streams = simulation.networks[plan.network], simulation.randomness.sampling
    return draw_survivors(network, drawn.present, streams, (drawn.number, step))


def _step(simulation: Simulation, plan: RoundPlan, drawn: Drawn, number: int) -> Step:
    """One local step: whose gradients, behind the noise of those heads that are in its sum."""
    network, mechanism = simulation.networks[plan.network], simulation.mechanisms[plan.network]
    alive = _alive(simulation, plan, drawn, number)
    devices = drawn.present & devices_in(network, alive)
    return Step(devices, _noise(network, mechanism, devices, alive), alive)


def _noise(
    network: Network, mechanism: Protection, devices: np.ndarray, alive: Mapping[int, np.ndarray]
) -> np.ndarray:
    """Each group's noise: of those heads that are in its sum."""
    drawn = [of_layer.copy() for of_layer in mechanism.noise.heads]
    for layer, members in alive.items():
        drawn[layer][~members] = 0.0
    below = *mean_variances(network, drawn, devices), np.zeros(len(devices))
    nodes = mechanism.lock_step.nodes
    return np.sqrt([below[layer][index] + drawn[layer][index] ** 2 for layer, index in nodes])
