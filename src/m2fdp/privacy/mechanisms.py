"""The two mechanisms: what a local step clips, and who adds how much noise to what.

`upload` (the papers'): the minibatch gradient is clipped and the model message is noised.
`gradient`: each record's gradient is clipped and every local step is noised, at the node that
the noise plan names; a trusted server and all devices below it step together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, prod, sqrt
from typing import Any, Literal

import numpy as np

from m2fdp.config import PrivacyConfig, TrainingConfig
from m2fdp.errors import InputError
from m2fdp.privacy.accounting import ACCOUNTANT, gaussian_epsilon, least_noise_multiplier
from m2fdp.topology.network import Network, noise_adders


@dataclass(frozen=True)
class Clipping:
    """What bounds one local step.

    Attributes:
        record_norm: the norm each record's gradient is clipped to, or None.
        batch_norm: the norm the minibatch gradient is clipped to, or None.
        divide_by: the clipped sum is divided by the `drawn` minibatch size (J eq. 6) or by
            the `expected` one, which is public and the same for neighbours.
    """

    record_norm: float | None
    batch_norm: float | None
    divide_by: Literal["drawn", "expected"]


@dataclass(frozen=True, eq=False)
class LockStep:
    """Which devices step together, as one learner, under `gradient`.

    Attributes:
        nodes: int64 (G, 2), the (layer, index) of the node at the head of each group.
        group_of: int64 (N_L,), each device's group.
        weights: float64 (N_L,), the product of rho on the path from the device to the head.
    """

    nodes: np.ndarray
    group_of: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise standard deviations, all in units of the step size eta.

    Attributes:
        steps: float64 (G,) per lock-step group, added to its gradient at every local step.
        messages: for layer l = 1…L, float64 (N_l,), added to the node's message to its parent.
    """

    steps: np.ndarray
    messages: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class ReleaseClass:
    """Records whose releases follow one law: a subsampled Gaussian, composed.

    Attributes:
        devices: how many devices hold such records.
        sampling_rate: q.
        noise_multiplier: the noise over the most that one record moves the release.
    """

    devices: int
    sampling_rate: float
    noise_multiplier: float


@dataclass(frozen=True, eq=False)
class Mechanism:
    """Everything the privacy configuration decides about a run.

    Attributes:
        clipping, lock_step, noise: see these types.
        guarantee: `verified` (an accountant upholds epsilon), `nominal only`, or `none`.
        releases: the release classes that an accountant covers; empty unless verified.
        releases_per_round: how often each class is released in a round.
    """

    clipping: Clipping
    lock_step: LockStep
    noise: Noise
    guarantee: Literal["none", "nominal only", "verified"]
    releases: tuple[ReleaseClass, ...]
    releases_per_round: int

    def epsilon(self, rounds: int, delta: float) -> float | None:
        """Verified epsilon after some rounds: the largest over records; None if there is none.

        It holds against the untrusted servers and the cloud, at record level, for neighbours
        that differ by adding or removing one record.
        """
        if self.guarantee != "verified":
            return None
        compositions = rounds * self.releases_per_round
        return max(
            gaussian_epsilon(r.noise_multiplier, r.sampling_rate, compositions, delta)
            for r in _undominated(self.releases)
        )


def check_delta(delta: float, shard_sizes: np.ndarray) -> None:
    """Raises InputError unless delta is below 1/(records of the largest shard).

    At 1/D a mechanism that publishes one record in clear would already pass.
    """
    largest = int(shard_sizes.max())
    if delta >= 1 / largest:
        raise InputError(
            "privacy.delta",
            delta,
            f"must be below 1/{largest} = {1 / largest:.3g}, "
            "one over the records of the largest shard",
        )


def no_privacy(network: Network, privacy: PrivacyConfig) -> Mechanism:
    """The local step of the configured mechanism with clipping and noise off."""
    divide_by: Literal["drawn", "expected"] = (
        "expected" if privacy.mechanism == "gradient" else "drawn"
    )
    single = _singletons(network)
    return Mechanism(
        Clipping(None, None, divide_by), single, _silence(network, single), "none", (), 0
    )


def build_mechanism(
    network: Network,
    shard_sizes: np.ndarray,
    rates: np.ndarray,
    training: TrainingConfig,
    privacy: PrivacyConfig,
) -> Mechanism:
    """The configured mechanism, calibrated to the target for this network and these shards.

    Args:
        shard_sizes: int64 (N_L,), D_j.
        rates: float64 (N_L,), q_j.
    """
    if privacy.mechanism == "upload":
        return _upload(network, rates, training, privacy)
    return _gradient(network, shard_sizes, rates, training, privacy)


def summary(mechanism: Mechanism, rounds: int, privacy: PrivacyConfig) -> dict[str, Any]:
    """What a run promises, with every assumption the promise rests on, ready for JSON."""
    result: dict[str, Any] = {"guarantee": mechanism.guarantee}
    if mechanism.guarantee == "none":
        return result | {"note": "no clipping and no noise: epsilon is infinite"}
    result |= {
        "mechanism": privacy.mechanism,
        "calibration": privacy.calibration,
        "epsilon_nominal": privacy.epsilon,
        "delta": privacy.delta,
        "clipping_norm": privacy.clipping_norm,
    }
    if mechanism.guarantee == "nominal only":
        return result | {
            "note": "J Prop. 1's noise; no accountant upholds the nominal epsilon of this run"
        }
    compositions = rounds * mechanism.releases_per_round
    return result | {
        "epsilon_verified": mechanism.epsilon(rounds, privacy.delta),
        "accountant": ACCOUNTANT,
        "unit": "record",
        "adjacency": "add_remove",
        "sampling": "poisson",
        "observers": "untrusted servers and the cloud",
        "assumptions": [
            "trusted servers are trusted and links into them are not read by others",
            "noise from a seeded generator: for simulation",
            "the schedule does not depend on the private data",
        ],
        "compositions": compositions,
        "releases": [
            {
                "devices": release.devices,
                "sampling_rate": release.sampling_rate,
                "noise_multiplier": release.noise_multiplier,
            }
            for release in mechanism.releases
        ],
    }


def _upload(
    network: Network, rates: np.ndarray, training: TrainingConfig, privacy: PrivacyConfig
) -> Mechanism:
    """J Prop. 1 with Lemma 1: sigma = alpha q Delta sqrt(K T ln(1/delta)) / epsilon, where
    Delta = 2 eta K G / (product of s_l' over the layers l' from the node's to L-1).
    """
    tree = network.tree
    compositions = training.local_steps * training.rounds
    factor = (
        privacy.alpha * rates.max() * sqrt(compositions * log(1 / privacy.delta)) / privacy.epsilon
    )
    messages = []
    for layer, noised in enumerate(network.noised, start=1):
        shared = prod(tree.smallest_fanout(below) for below in range(layer, tree.depth))
        sensitivity = 2 * training.local_steps * privacy.clipping_norm / shared
        messages.append(np.where(noised, factor * sensitivity, 0.0))
    single = _singletons(network)
    return Mechanism(
        Clipping(None, privacy.clipping_norm, "drawn"),
        single,
        Noise(np.zeros(len(single.nodes)), tuple(messages)),
        "nominal only",
        (),
        0,
    )


def _gradient(
    network: Network,
    shard_sizes: np.ndarray,
    rates: np.ndarray,
    training: TrainingConfig,
    privacy: PrivacyConfig,
) -> Mechanism:
    """DP-SGD at the noise-adding nodes, with the least noise that every record needs.

    One record of device j moves its group's gradient by at most omega_j C / B_j; the group's
    noise is the largest that any of its devices asks for.
    """
    lock_step = _lock_step(network)
    expected_sizes = rates * shard_sizes
    shifts = lock_step.weights * privacy.clipping_norm / expected_sizes
    compositions = training.rounds * training.local_steps
    least = {
        rate: least_noise_multiplier(rate, compositions, privacy.epsilon, privacy.delta)
        for rate in np.unique(rates).tolist()
    }
    needed = np.array([least[rate] for rate in rates.tolist()]) * shifts
    steps = np.zeros(len(lock_step.nodes))
    np.maximum.at(steps, lock_step.group_of, needed)
    return Mechanism(
        Clipping(privacy.clipping_norm, None, "expected"),
        lock_step,
        Noise(steps, _silence(network, lock_step).messages),
        "verified",
        _release_classes(rates, steps[lock_step.group_of] / shifts),
        training.local_steps,
    )


def _release_classes(rates: np.ndarray, multipliers: np.ndarray) -> tuple[ReleaseClass, ...]:
    """Equal laws share one class; multipliers are rounded down, so that epsilon is not."""
    digits = 10.0 ** (10 - np.ceil(np.log10(multipliers)))
    floors = np.floor(multipliers * digits) / digits
    pairs, counts = np.unique(np.stack([rates, floors], axis=1), axis=0, return_counts=True)
    return tuple(
        ReleaseClass(int(count), float(rate), float(multiplier))
        for (rate, multiplier), count in zip(pairs, counts, strict=True)
    )


def _undominated(releases: tuple[ReleaseClass, ...]) -> list[ReleaseClass]:
    """The classes that can have the largest epsilon: none samples more with less noise."""
    result: list[ReleaseClass] = []
    for release in sorted(releases, key=lambda r: (-r.sampling_rate, r.noise_multiplier)):
        if not result or release.noise_multiplier < result[-1].noise_multiplier:
            result.append(release)
    return result


def _lock_step(network: Network) -> LockStep:
    tree = network.tree
    nodes, group_of = np.unique(noise_adders(network), axis=0, return_inverse=True)
    head_layer = nodes[group_of, 0]
    weights = np.ones(tree.n_devices)
    for layer in range(tree.depth, 0, -1):
        inside = head_layer < layer
        weights[inside] *= network.weights[layer - 1][tree.ancestors[layer][inside]]
    return LockStep(nodes, group_of, weights)


def _singletons(network: Network) -> LockStep:
    tree = network.tree
    devices = np.arange(tree.n_devices)
    nodes = np.stack([np.full_like(devices, tree.depth), devices], axis=1)
    return LockStep(nodes, devices, np.ones(tree.n_devices))


def _silence(network: Network, lock_step: LockStep) -> Noise:
    return Noise(
        np.zeros(len(lock_step.nodes)),
        tuple(np.zeros(len(parents)) for parents in network.tree.parents),
    )
