"""Rounds in which messages are read as sums, and what a run says of them.

Lock-step groups below a node that reads only the sum of what its members send add up their
gradients, and their parts of shared noise, at every local step.

Members fall silent, and groups that lose too many are lost. Everybody shares keys first, so a
member that falls silent afterwards is missed by nobody's masks; what it would have added counts as
zero, and all denominators stay what they are.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from m2fdp.chance.updates import ByUpdates
from m2fdp.core.engine.execution import ExecutionSettings
from m2fdp.core.engine.minibatches import draw_participants
from m2fdp.core.engine.noise import add_noise
from m2fdp.core.engine.process import Simulation, State
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.seams import Drawn, Step, Stretch
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.privacy.summary import Promised
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import Streams, seeded
from m2fdp.core.topology.network import Network, readers
from m2fdp.secure_aggregation.terms import LARGEST_GRID

# Which sums are lost is drawn before training; more local steps are not looked at.
_MOST_STEPS_COUNTED = 20_000


def step_in_sums(network: Network, mechanism: Protection) -> bool:
    """Whether groups below a reader of sums move in lock step."""
    drawn, nodes = mechanism.noise.heads, mechanism.lock_step.nodes
    in_lock_step = (drawn[layer][index] == 0 for layer, index in nodes)
    return network.sums.shared and any(of_layer.any() for of_layer in drawn) and any(in_lock_step)


def steps_in_sums(simulation: Simulation, settings: ExecutionSettings) -> type[Round] | None:
    """The rounds of a simulation whose steps end in sums."""
    pairs = zip(simulation.networks, simulation.mechanisms, strict=True)
    return StepSums if any(step_in_sums(*pair) for pair in pairs) else None


def sums_that_lose(simulation: Simulation, settings: ExecutionSettings) -> type[Round] | None:
    """The rounds of a simulation in whose sums members fall silent."""
    silent = any(network.sums.layers and network.sums.dropout for network in simulation.networks)
    return LostSums if silent else None


def stays(network: Network, streams: Streams, layer: int, at: tuple[int, int]) -> np.ndarray:
    """Which nodes of a layer of sums do not fall silent after a round's step: bool (N_layer,)."""
    n_nodes = network.tree.n_nodes(layer)
    if not network.sums.dropout:
        return np.ones(n_nodes, dtype=bool)
    return streams.generator("dropout", *at, layer).random(n_nodes) >= network.sums.dropout


def draw_survivors(
    network: Network, present: np.ndarray, streams: Streams, at: tuple[int, int]
) -> dict[int, np.ndarray]:
    """Whose messages are in the sums after a local step: by layer l of sums, bool (N_l,).

    All of a group that is below its threshold are left out.

    Args:
        present: bool (N_L,), the devices that take part in the round.
        at: round and step.
    """
    sums, tree = network.sums, network.tree
    alive: dict[int, np.ndarray] = {}
    for layer in sorted(sums.layers):
        members = present if layer == tree.depth else np.ones(tree.n_nodes(layer), dtype=bool)
        of_node = readers(tree, sums, layer)
        thresholds = sums.least_members(np.bincount(of_node, weights=members).astype(np.int64))
        members = members & stays(network, streams, layer, at)
        remaining = np.bincount(of_node, weights=members).astype(np.int64)
        alive[layer] = members & (remaining >= thresholds)[of_node]
    return alive


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
            rho = list(weights.get(last, network.weights))
            for layer, members in _alive(simulation, plan, drawn, last).items():
                rho[layer - 1] = rho[layer - 1] * members
            weights[last] = tuple(rho)
        return replace(drawn, weights=weights)

    @property
    def missed(self) -> frozenset[int]:
        return super().missed | self.network.sums.layers


def _alive(
    simulation: Simulation, plan: RoundPlan, drawn: Drawn, step: int
) -> dict[int, np.ndarray]:
    network, streams = simulation.networks[plan.network], simulation.randomness.sampling
    return draw_survivors(network, drawn.present, streams, (drawn.number, step))


def _step(simulation: Simulation, plan: RoundPlan, drawn: Drawn, number: int) -> Step:
    """One local step: whose gradients, behind the noise of those heads that are in its sum."""
    network, mechanism = simulation.networks[plan.network], simulation.mechanisms[plan.network]
    alive, devices = _alive(simulation, plan, drawn, number), drawn.present.copy()
    noise = [of_layer.copy() for of_layer in mechanism.noise.heads]
    for layer, members in alive.items():
        devices &= members[network.tree.ancestors[layer]]
        noise[layer][~members] = 0.0
    below = *mean_variances(network, noise, devices), np.zeros(len(devices))
    nodes = mechanism.lock_step.nodes
    groups = np.sqrt([below[layer][index] + noise[layer][index] ** 2 for layer, index in nodes])
    return Step(devices, groups, alive)


def promised(assembly: Assembly) -> Promised:
    """What epsilon rests on where some messages are read as sums only."""
    sums, colluding = assembly.config.secure_aggregation, assembly.config.threat.colluding
    if not sums.layers:
        return Promised()
    colluders = f", of whom at most {colluding} tell what noise they drew" if colluding else ""
    lines = [
        "secure aggregation: parties follow the protocol, and of those who send the reader learns "
        f"their sum and who is in it, nothing else{colluders}"
    ]
    if sums.noise == "shared":
        lines.append("no sum is read without the noise of as many honest senders as are counted on")
    if sums.protocol == "masks":
        lines += [
            "masks hide what they cover: X25519, HKDF and ChaCha20 are what they are held to be",
            f"a sum of Gaussians on a grid of less than {LARGEST_GRID:g} of their deviation "
            "behaves as a Gaussian",
            "vectors that are summed without noise of their own, M numbers each, count as if not "
            "rounded: on a grid 1/f a record moves them by up to sqrt(M)/f more",
        ]
    return Promised(tuple(lines))


def lost_sums(assembly: Assembly) -> list[str]:
    """How many sums nobody will read; not where counting takes long."""
    config, run_plan, calibrated = assembly.config, assembly.run_plan, assembly.calibration
    network, plans = run_plan.networks[0], run_plan.rounds[: calibrated.affordable_rounds]
    steps = sum(len(plan.layers) for plan in plans)
    if not network.sums.dropout or steps > _MOST_STEPS_COUNTED:
        return []
    # Else only steps after which models travel end in sums.
    every_step = step_in_sums(network, calibrated.mechanism)
    streams, lost, total = seeded(config.seed, b"").sampling, 0, 0
    for number, plan in enumerate(plans, start=1):
        present = draw_participants(network, streams, number)
        for step, top in enumerate(plan.layers, start=1):
            alive = draw_survivors(network, present, streams, (number, step))
            for layer, members in alive.items():
                if every_step or (top is not None and top < layer):
                    of_node = readers(network.tree, network.sums, layer)
                    remaining = np.bincount(of_node, weights=members)
                    lost += int((remaining == 0).sum())
                    total += len(remaining)
    if not lost:
        return []
    return [
        f"{lost:,} of {total:,} sums lose too many senders to be read: training goes on as if "
        "none of them had moved (secure_aggregation.dropout, threshold)"
    ]
