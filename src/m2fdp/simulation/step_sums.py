"""What each local step of a round adds up: whose gradients, behind how much noise.

Lock-step groups below a node that reads only the sum of what its members send add up their
gradients, and their parts of shared noise, at every local step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.privacy.variance import mean_variances
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.learners import Learners
from m2fdp.simulation.simulation import Simulation
from m2fdp.simulation.survivors import devices_in, draw_survivors
from m2fdp.topology.network import Network


@dataclass(frozen=True, eq=False)
class StepSums:
    """One local step.

    Attributes:
        devices: bool (N_L,), whose gradients count.
        members: by layer l of sums, bool (N_l,), who is in the sums; empty where no step ends in
            a sum.
        noise: float64 (G,), the deviation of each lock-step group's noise, in units of eta.
    """

    devices: np.ndarray
    members: dict[int, np.ndarray]
    noise: np.ndarray


def step_sums(
    simulation: Simulation, plan: RoundPlan, learners: Learners, number: int
) -> tuple[StepSums, ...]:
    """The local steps k = 1…K of round t = `number`.

    Raises:
        LostSumError: see `draw_survivors`.
    """
    network, mechanism = simulation.networks[plan.network], simulation.mechanisms[plan.network]
    if not step_in_sums(network, mechanism):
        step = StepSums(learners.present, {}, mechanism.noise.steps)
        return (step,) * len(plan.layers)

    def drawn(step: int) -> StepSums:
        streams, losses = simulation.randomness.sampling, simulation.losses
        alive = draw_survivors(network, learners.present, streams, losses, (number, step))
        devices = learners.present & devices_in(network, alive)
        return StepSums(devices, alive, _noise(network, mechanism, devices, alive))

    if network.sums.dropout:
        return tuple(drawn(step) for step in range(1, len(plan.layers) + 1))
    return (drawn(1),) * len(plan.layers)


def step_in_sums(network: Network, mechanism: CalibratedMechanism) -> bool:
    """Whether groups below a reader of sums move in lock step."""
    drawn, nodes = mechanism.noise.heads, mechanism.lock_step.nodes
    together = (drawn[layer][index] == 0 for layer, index in nodes)
    return network.sums.shared and any(of_layer.any() for of_layer in drawn) and any(together)


def _noise(
    network: Network,
    mechanism: CalibratedMechanism,
    devices: np.ndarray,
    alive: dict[int, np.ndarray],
) -> np.ndarray:
    """Each group's noise: of those heads that are in its sum."""
    drawn = [of_layer.copy() for of_layer in mechanism.noise.heads]
    for layer, members in alive.items():
        drawn[layer][~members] = 0.0
    variances = mean_variances(network, drawn, devices)
    return np.sqrt(
        [
            (variances[layer][index] if layer < network.tree.depth else 0.0)
            + drawn[layer][index] ** 2
            for layer, index in mechanism.lock_step.nodes
        ]
    )
