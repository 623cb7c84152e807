"""What a round of each choice adds to the gap, with the noise that a calibrated mechanism draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from m2fdp.control.noise import NoiseLaw
from m2fdp.control.problem import ChoiceGrid, below_trusted
from m2fdp.convergence.mean_descent import Landscape, RoundSpread, carried, parted, sample_variance
from m2fdp.privacy.mechanisms import LockStep
from m2fdp.topology.network import Network


@dataclass(frozen=True, eq=False)
class SampleTerms:
    """What participation of s devices a lowest server brings, in one branch, each (s,).

    Attributes:
        missed: squared distance of the mean gradient of those who take part, weighted as the
            global model weighs them, from that of all.
        followed: the same, of devices that step together, as far as their models go with it.
        minibatch: variance of a step's mean gradient that minibatches bring.
    """

    missed: np.ndarray
    followed: np.ndarray
    minibatch: np.ndarray


@dataclass(frozen=True, eq=False)
class Spread:
    """A round of each choice, as a function of tau.

    Attributes:
        grid: the choices.
        landscape: of the losses.
        n_parameters: M.
        laws: the noise below trusted, and below untrusted nodes of layer 1.
        samples: participation there.
    """

    grid: ChoiceGrid
    landscape: Landscape
    n_parameters: int
    laws: tuple[NoiseLaw, NoiseLaw]
    samples: tuple[SampleTerms, SampleTerms]

    def __call__(self, total: int) -> RoundSpread:
        """If noise is calibrated to tau = total local steps, (k, a, b)."""
        steps = self.grid.local_steps
        noises = [
            law.at(total, steps, np.maximum(sizes, 1))
            for law, sizes in zip(self.laws, self.grid.sizes, strict=True)
        ]

        def both(below_trusted: np.ndarray, below_untrusted: np.ndarray) -> np.ndarray:
            return np.asarray(below_trusted[..., :, None] + below_untrusted[..., None, :])

        step, local, arriving = (
            self.n_parameters * both(*(getattr(noise, name) for noise in noises))
            for name in ("step", "local", "arriving")
        )
        missed, followed, minibatch = (
            both(*(getattr(terms, name) for terms in self.samples))
            for name in ("missed", "followed", "minibatch")
        )
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
) -> tuple[SampleTerms, SampleTerms]:
    """Below trusted, and below untrusted nodes of layer 1.

    Args:
        network: of uniform weights, in which all devices take part.
        sizes: the values of s_T, (a,), and of s_U, (b,).
        minibatch_variances: of each device's gradient, (N_L,).
        dissimilarity: zeta.
    """
    tree = network.tree
    parents, children = tree.parents[-1], tree.n_children(tree.depth - 1)
    together = np.zeros(len(children), dtype=bool)
    together[parents[lock_step.nodes[lock_step.group_of, 0] < tree.depth]] = True
    shares = network.shares(tree.depth - 1, 0)
    noisy = np.bincount(parents, weights=minibatch_variances) / children
    trusted = below_trusted(network)

    def terms(branch: np.ndarray, values: np.ndarray) -> SampleTerms:
        of, share = children[branch], shares[branch]
        present = np.clip(values[:, None], 1, of)
        variance = sample_variance(present, of, dissimilarity)
        return SampleTerms(
            (share**2 * variance).sum(axis=1),
            (share * together[branch] * variance).sum(axis=1),
            (share**2 * noisy[branch] / present).sum(axis=1),
        )

    return terms(trusted, sizes[0]), terms(~trusted, sizes[1])
