"""What is decided of a round before anybody computes, and what of it every server knows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from m2fdp.core.engine.noise import RoundNoise
from m2fdp.core.engine.process import Named, State
from m2fdp.core.engine.sampling import draw_participants
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.engine.step_sums import StepSums, step_sums
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network
from m2fdp.secure_aggregation.survivors import draw_survivors


@dataclass(frozen=True, eq=False)
class Announcement:
    """What is decided of round t = `number` before anybody computes.

    Attributes:
        model: (M,), global model that it begins with.
        received: the server's slots, (M,) each.
        present: bool (N_L,), the devices that take part.
        steps: local steps k = 1…K.
        weights: float64 (N_L,), what the devices' updates count with, where they join by chance;
            else None.
        alive: {the step that an aggregation follows: {layer l of sums: bool (N_l,), who has not
            fallen silent by then}}; empty where all that are summed bring what they send.
    """

    number: int
    plan: RoundPlan
    model: Tensor
    received: Named
    present: np.ndarray
    steps: tuple[StepSums, ...]
    weights: np.ndarray | None
    alive: dict[int, dict[int, np.ndarray]]

    def noise(self, simulation: Simulation, first: tuple[int, ...] | None = None) -> RoundNoise:
        """The round's draws.

        Args:
            first: places of a part's first nodes; None = the whole.
        """
        scale = simulation.mechanisms[self.plan.network].noise.scale(self.plan.step_size)
        first = first or (0,) * (simulation.networks[0].tree.depth + 1)
        return RoundNoise(simulation.randomness.noise, self.number, scale, first)


def announce(simulation: Simulation, plan: RoundPlan, state: State) -> Announcement:
    """Draw who takes part in a round, and who falls silent in it.

    Raises:
        LostSumError: see `draw_survivors`.
    """
    number, network = state.round + 1, simulation.networks[plan.network]
    streams, rules = simulation.randomness.sampling, simulation.sums
    present = draw_participants(network, streams, number)
    steps = step_sums(simulation, plan, present, number)
    alive = {}
    if network.sums.layers and (network.sums.dropout or rules.masks):
        for step, top in enumerate(plan.layers, start=1):
            if top is not None:
                alive[step] = draw_survivors(network, present, streams, rules, (number, step))
    weights = None if network.participation is None else network.among(present).weights[-1]
    server = state.slots.server
    return Announcement(number, plan, state.weights, server, present, steps, weights, alive)


def weighed(network: Network, weights: np.ndarray | None) -> Network:
    """The network with the weights of a round's devices, float64 (N_L,), if they have any."""
    if weights is None:
        return network
    return replace(network, participation=None, rho=(*network.weights[:-1], weights))


def summed_noise(
    mechanism: Protection,
    steps: np.ndarray | None,
    weighing: Network,
    present: np.ndarray,
    top: int,
) -> np.ndarray:
    """Deviations of all noise of the last step and of the messages below each model of layer `top`,
    which is drawn as one: float64 (N_top,).

    Independent noises that nobody sees one by one only ever feed their sum, whose law is that of
    one Gaussian with the summed variance.

    Args:
        steps: float64 (G,), deviations of the step's noise; None where it is in the models.
        present: bool (N_L,), the devices that send.
    """
    lock_step = mechanism.lock_step
    steps = np.zeros(len(lock_step.nodes)) if steps is None else steps
    deviations = [scales.copy() for scales in mechanism.noise.sent(top)]
    for layer in range(top + 1, len(deviations)):
        in_layer = lock_step.nodes[:, 0] == layer
        nodes, of_layer = lock_step.nodes[in_layer, 1], deviations[layer]
        of_layer[nodes] = np.hypot(of_layer[nodes], steps[in_layer])
    return np.sqrt(mean_variances(weighing, deviations, present, top)[0])
