"""The noise that a calibrated mechanism draws, as a function of tau, K and participation.

A few runs are calibrated as they would be trained; between them the logarithm of a variance is
linear in those of tau, K and s. Where no records are sampled and subnets are of one size this is
exact: variances are then products of powers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from m2fdp.control.problem import ChoiceGrid, lowest, trusted_branch, with_present
from m2fdp.convergence.descent import arriving_noise
from m2fdp.convergence.mean_descent import Landscape, RoundSpread, carried, parted, sample_variance
from m2fdp.core.privacy.calibration import CalibratedMechanism
from m2fdp.core.privacy.mechanisms import LockStep, Noise
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import Network

# Calibrates a run: a network in which so many devices take part, and its rounds.
Calibrate = Callable[[Network, Sequence[RoundPlan]], CalibratedMechanism]
# Calibrated numbers are this factor apart. Where steps sample records, a calibration takes long:
# then so many values of tau and K are looked at.
_APART = 4.0
_MOST_SAMPLED = 3


@dataclass(frozen=True, eq=False)
class NoiseLaw:
    """The noise of the nodes in one branch, below and at trusted or untrusted nodes of layer 1.

    Attributes:
        every_step: whether it is drawn at local steps, and else with messages.
        rounds, local_steps, sizes: what was calibrated: T, K and s, ascending.
        local, arriving: the variances that all local aggregations of a round bring into the mean
            of all models, and that the whole round does, a parameter and over eta^2, for each of
            them, (t, k, s). Where noise is drawn at every step, of a round of one step.
    """

    every_step: bool
    rounds: np.ndarray
    local_steps: np.ndarray
    sizes: np.ndarray
    local: np.ndarray
    arriving: np.ndarray

    def at(self, total: int, local_steps: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """The variances that every local step, all local aggregations and the whole round bring
        into the mean of all models, for tau local steps in all, and every K and s: (3, k, s)."""
        none = np.zeros((len(local_steps), len(sizes)))
        if self.every_step:
            at = np.full(len(local_steps), total), np.ones(len(local_steps), dtype=np.int64), sizes
            step = self._between(self.arriving, *at)
            return np.stack([step, none, step * local_steps[:, None]])
        at = -(-total // local_steps), local_steps, sizes
        return np.stack([none, self._between(self.local, *at), self._between(self.arriving, *at)])

    def _between(
        self, values: np.ndarray, rounds: np.ndarray, local_steps: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Linear in all logarithms, for every pair of T and K and every s; beyond the ends as at
        them: (k, s)."""
        if not (values > 0).all():
            return np.zeros((len(rounds), len(sizes)))
        from scipy.ndimage import map_coordinates  # runs without a controller need none of it

        t, k, s = (
            np.interp(np.log(values_at), np.log(calibrated), np.arange(len(calibrated)))
            for calibrated, values_at in (
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
    largest: tuple[int, int],
    sampled: bool,
    every_step: bool,
) -> tuple[NoiseLaw, NoiseLaw]:
    """Below trusted, and below untrusted nodes of layer 1; the cloud's own noise is the former's.

    Args:
        network: a network in which all devices take part.
        schedule: configured rounds, whose local aggregations are kept.
        largest: the largest tau and K.
        sampled: whether steps use records by chance: then calibrations take long.
        every_step: whether noise is drawn at every local step.

    Raises:
        InputError: what `calibrate` refuses.
    """
    few = _MOST_SAMPLED if sampled else None
    steps = np.array([1]) if every_step else _spread(largest[1], few)
    rounds = _spread(largest[0], few or 2)
    children = network.tree.n_children(network.tree.depth - 1)
    sizes = _spread(int(children.max()), 2 if sampled else None)
    trusted = trusted_branch(network.tree, network.trust)
    variances = np.zeros((2, 2, len(rounds), len(steps), len(sizes)))
    for s, size in enumerate(sizes):
        taking_part = with_present(network, np.minimum(children, size))
        for k, local_steps in enumerate(steps):
            of_round = replace(schedule, local_steps=int(local_steps))
            layers = of_round.layers()
            for t, n_rounds in enumerate(rounds):
                drawn = calibrate(
                    taking_part, replace(of_round, rounds=int(n_rounds)).round_plans()
                )
                for branch, nodes in enumerate((trusted, [~mask for mask in trusted])):
                    noise = _only(drawn, nodes)
                    variances[branch, :, t, k, s] = [
                        arriving_noise(taking_part, drawn.lock_step, noise, part)
                        for part in (layers[:-1], layers)
                    ]
    laws = [NoiseLaw(every_step, rounds, steps, sizes, *of_branch) for of_branch in variances]
    return laws[0], laws[1]


def _spread(largest: int, count: int | None) -> np.ndarray:
    """Whole numbers from 1 to the largest, evenly spread by their logarithm; 1 alone where it is
    that."""
    if count is None:
        count = 2 + int(np.log(largest) / np.log(_APART))
    return np.unique(np.geomspace(1, largest, count).round().astype(np.int64))


def _only(drawn: CalibratedMechanism, nodes: Sequence[np.ndarray]) -> Noise:
    """The noise of some nodes alone, bool (N_l,) for layer l = 0…L."""
    noise, heads = drawn.noise, drawn.lock_step.nodes
    return replace(
        noise,
        steps=noise.steps * np.array([nodes[layer][node] for layer, node in heads]),
        messages=tuple(scale * mask for scale, mask in zip(noise.messages, nodes, strict=True)),
        broadcasts=tuple(
            scale * mask for scale, mask in zip(noise.broadcasts, nodes, strict=False)
        ),
    )


@dataclass(frozen=True, eq=False)
class Spread:
    """A round of each choice, as a function of tau; `laws` are the noise below trusted, and below
    untrusted nodes of layer 1, and `samples` what participation brings there (`sample_terms`)."""

    grid: ChoiceGrid
    landscape: Landscape
    n_parameters: int
    laws: tuple[NoiseLaw, NoiseLaw]
    samples: tuple[np.ndarray, np.ndarray]

    def __call__(self, total: int) -> RoundSpread:
        """If noise is calibrated to tau = total local steps, (k, a, b)."""
        steps = self.grid.local_steps
        noises = [
            law.at(total, steps, np.maximum(sizes, 1))
            for law, sizes in zip(self.laws, self.grid.sizes, strict=True)
        ]
        step, local, arriving = self.n_parameters * _of_both(*noises)
        missed, followed, minibatch = _of_both(*self.samples)
        k = steps[:, None, None]
        return RoundSpread(
            parted(k, self.landscape.dissimilarity**2 + followed),
            carried(k, step + minibatch, local),
            k * minibatch + k**2 * missed,
            arriving,
        )


def sample_terms(
    network: Network,
    lock_step: LockStep,
    sizes: tuple[np.ndarray, np.ndarray],
    minibatch_variances: np.ndarray,
    dissimilarity: float,
) -> tuple[np.ndarray, np.ndarray]:
    """What participation of s devices a lowest server brings, below trusted, and below untrusted
    nodes of layer 1.

    Args:
        network: a network of uniform weights, in which all devices take part.
        sizes: the values of s_T, (a,), and of s_U, (b,).
        minibatch_variances: the variance of each device's gradient, (N_L,).
        dissimilarity: zeta.

    Returns:
        (3, a) and (3, b). First the squared distance of the participants' mean gradient from that
        of all devices, weighted as in the global model. Then the same distance for devices that
        step together. Last the variance that minibatches add to a step's mean gradient.
    """
    tree, (children, trusted) = network.tree, lowest(network)
    parents = tree.parents[-1]
    step_together = np.zeros(len(children), dtype=bool)
    step_together[parents[lock_step.nodes[lock_step.group_of, 0] < tree.depth]] = True
    shares = network.shares(tree.depth - 1, 0)
    noisy = np.bincount(parents, weights=minibatch_variances) / children

    def terms(branch: np.ndarray, values: np.ndarray) -> np.ndarray:
        devices, share = children[branch], shares[branch]
        present = np.clip(values[:, None], 1, devices)
        variance = sample_variance(present, devices, dissimilarity)
        of_servers = (
            share**2 * variance,
            share * step_together[branch] * variance,
            share**2 * noisy[branch] / present,
        )
        return np.stack([of_server.sum(axis=1) for of_server in of_servers])

    return terms(trusted, sizes[0]), terms(~trusted, sizes[1])


def _of_both(below_trusted: np.ndarray, below_untrusted: np.ndarray) -> np.ndarray:
    """The sums over both branches, (…, a, b), of (…, a) and (…, b)."""
    return np.asarray(below_trusted[..., :, None] + below_untrusted[..., None, :])
