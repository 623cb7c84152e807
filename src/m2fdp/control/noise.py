"""The noise that a calibrated mechanism draws, as a function of tau, K and participation.

A few runs are calibrated as they would be trained; between them the logarithm of a variance is
linear in those of tau, K and s. Where no records are sampled and subnets are of one size this is
exact: variances are then products of powers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from m2fdp.convergence.descent import arriving_noise
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.privacy.mechanisms import Noise
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.schedule.schedule import Schedule
from m2fdp.topology.network import Network

# Calibrates a run: a network in which so many devices take part, and its rounds.
Calibrate = Callable[[Network, Sequence[RoundPlan]], CalibratedMechanism]
# Calibrated numbers are this factor apart. Where steps sample records, a calibration takes long:
# then so many values of tau and K are looked at.
_APART = 4.0
_MOST_SAMPLED = 3


@dataclass(frozen=True, eq=False)
class RoundVariances:
    """Variances, a parameter and over eta^2, that a round brings into the mean of all models.

    Attributes:
        step: of every local step, (k, s).
        local: of all its local aggregations, (k, s).
        arriving: of the whole round, (k, s).
    """

    step: np.ndarray
    local: np.ndarray
    arriving: np.ndarray


@dataclass(frozen=True, eq=False)
class NoiseLaw:
    """The noise of the nodes in one branch, below and at trusted or untrusted nodes of layer 1.

    Attributes:
        every_step: whether it is drawn at local steps, and else with messages.
        rounds, local_steps, sizes: what was calibrated: T, K and s, ascending.
        local, arriving: as in `RoundVariances`, for each of them, (t, k, s). Where noise is drawn
            at every step, of a round of one step.
    """

    every_step: bool
    rounds: np.ndarray
    local_steps: np.ndarray
    sizes: np.ndarray
    local: np.ndarray
    arriving: np.ndarray

    def at(self, total: int, local_steps: np.ndarray, sizes: np.ndarray) -> RoundVariances:
        """For tau local steps in all, and every K and s: (k, s)."""
        shape = len(local_steps), len(sizes)
        if self.every_step:
            at = np.full(len(local_steps), total), np.ones(len(local_steps), dtype=np.int64), sizes
            step = self._between(self.arriving, *at)
            return RoundVariances(step, np.zeros(shape), step * local_steps[:, None])
        at = -(-total // local_steps), local_steps, sizes
        local, arriving = (self._between(values, *at) for values in (self.local, self.arriving))
        return RoundVariances(np.zeros(shape), local, arriving)

    def _between(
        self, values: np.ndarray, rounds: np.ndarray, local_steps: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Linear in all logarithms, for every pair of T and K and every s; beyond the ends as at
        them: (k, s)."""
        if not (values > 0).all():
            return np.zeros((len(rounds), len(sizes)))
        from scipy.ndimage import map_coordinates  # runs without a controller need none of it

        t, k, s = (
            np.interp(np.log(wanted), np.log(known), np.arange(len(known)))
            for known, wanted in (
                (self.rounds, rounds),
                (self.local_steps, local_steps),
                (self.sizes, sizes),
            )
        )
        places = np.broadcast_arrays(t[:, None], k[:, None], s[None, :])
        return np.asarray(np.exp(map_coordinates(np.log(values), places, order=1, mode="nearest")))


def noise_laws(
    network: Network,
    schedule: Schedule,
    calibrate: Calibrate,
    most: tuple[int, int],
    sampled: bool,
    every_step: bool,
) -> tuple[NoiseLaw, NoiseLaw]:
    """Below trusted, and below untrusted nodes of layer 1; the cloud's own noise is the former's.

    Args:
        network: in which all devices take part.
        schedule: its local aggregations are kept.
        most: the largest tau and K.
        sampled: whether steps use records by chance: then calibrations take long.
        every_step: whether noise is drawn at every local step.

    Raises:
        InputError: what `calibrate` refuses.
    """
    total, most_steps = most
    few = _MOST_SAMPLED if sampled else None
    steps = np.array([1]) if every_step else _spread(most_steps, few)
    rounds = _spread(total, few or 2)
    children = network.tree.n_children(network.tree.depth - 1)
    sizes = _spread(int(children.max()), 2 if sampled else None)
    branch = _trusted_branch(network)
    found = np.zeros((2, 2, len(rounds), len(steps), len(sizes)))
    for s, size in enumerate(sizes):
        present = np.minimum(children, size)
        everybody = (present == children).all()
        taking_part = network if everybody else replace(network, participants=present)
        for k, local_steps in enumerate(steps):
            of_round = replace(schedule, local_steps=int(local_steps))
            for t, n_rounds in enumerate(rounds):
                plans = replace(of_round, rounds=int(n_rounds)).round_plans()
                drawn = calibrate(taking_part, plans)
                for number, inside in enumerate((branch, [~nodes for nodes in branch])):
                    noise = _only(drawn, inside)
                    layers = of_round.layers()
                    found[number, :, t, k, s] = [
                        arriving_noise(taking_part, drawn.lock_step, noise, part)
                        for part in (layers[:-1], layers)
                    ]
    laws = [NoiseLaw(every_step, rounds, steps, sizes, *of_branch) for of_branch in found]
    return laws[0], laws[1]


def _spread(most: int, count: int | None) -> np.ndarray:
    """Whole numbers from 1 to `most`, evenly spread by their logarithm; one alone where it is 1."""
    if count is None:
        count = 2 + int(np.log(most) / np.log(_APART))
    return np.unique(np.geomspace(1, most, count).round().astype(np.int64))


def _trusted_branch(network: Network) -> list[np.ndarray]:
    """Is the ancestor at layer 1 of each node trusted: for layer l = 0…L, bool (N_l,)."""
    inside = [np.ones(1, dtype=bool), network.trust[1]]
    for parents in network.tree.parents[1:]:
        inside.append(inside[-1][parents])
    return inside


def _only(drawn: CalibratedMechanism, inside: Sequence[np.ndarray]) -> Noise:
    """The noise of some nodes alone."""
    noise, heads = drawn.noise, drawn.lock_step.nodes
    of_heads = np.array([inside[layer][node] for layer, node in heads])
    return replace(
        noise,
        steps=noise.steps * of_heads,
        messages=tuple(scale * nodes for scale, nodes in zip(noise.messages, inside, strict=True)),
        broadcasts=tuple(
            scale * nodes for scale, nodes in zip(noise.broadcasts, inside, strict=False)
        ),
    )
