"""What a round of each choice adds to the gap, with the noise that a calibrated mechanism draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from m2fdp.control.noise import NoiseLaw
from m2fdp.control.problem import ChoiceGrid
from m2fdp.convergence.mean_descent import Landscape, RoundSpread, carried, parted, sample_variance
from m2fdp.core.privacy.mechanisms import LockStep
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.trust import trusted_branch


@dataclass(frozen=True, eq=False)
class Spread:
    """A round of each choice, as a function of tau.

    Attributes:
        grid: the choices.
        landscape: what is known of the losses.
        n_parameters: M.
        laws: the noise below trusted, and below untrusted nodes of layer 1.
        samples: what participation brings there, as `sample_terms` has it.
    """

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
        (3, a) and (3, b): the squared distance of the mean gradient of those who take part,
        weighted as the global model weighs them, from that of all; the same of devices that step
        together, as far as their models go with it; and the variance of a step's mean gradient
        that minibatches bring.
    """
    tree = network.tree
    parents, children = tree.parents[-1], tree.n_children(tree.depth - 1)
    step_together = np.zeros(len(children), dtype=bool)
    step_together[parents[lock_step.nodes[lock_step.group_of, 0] < tree.depth]] = True
    shares = network.shares(tree.depth - 1, 0)
    noisy = np.bincount(parents, weights=minibatch_variances) / children
    trusted = trusted_branch(tree, network.trust)[-2]

    def terms(branch: np.ndarray, values: np.ndarray) -> np.ndarray:
        devices, share = children[branch], shares[branch]
        present = np.clip(values[:, None], 1, devices)
        variance = sample_variance(present, devices, dissimilarity)
        return np.stack(
            [
                (share**2 * variance).sum(axis=1),
                (share * step_together[branch] * variance).sum(axis=1),
                (share**2 * noisy[branch] / present).sum(axis=1),
            ]
        )

    return terms(trusted, sizes[0]), terms(~trusted, sizes[1])


def _of_both(below_trusted: np.ndarray, below_untrusted: np.ndarray) -> np.ndarray:
    """The sums over both branches, (…, a, b), of (…, a) and (…, b)."""
    return np.asarray(below_trusted[..., :, None] + below_untrusted[..., None, :])
