"""Who computes in a round: learners, and the records that each uses in a step.

A learner is a lock-step group of the mechanism: a device alone, or a trusted server with the data
of all devices below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from m2fdp.core.engine.minibatches import Minibatches, Shards
from m2fdp.core.engine.sampling import poisson_draw
from m2fdp.core.privacy.mechanisms import LockStep, Protection
from m2fdp.core.streams import Streams
from m2fdp.core.topology.network import Network


@dataclass(frozen=True, eq=False)
class Learners:
    """The learners of one round, by the layers of their heads.

    A unit sums one gradient. It is a learner; or a device, where the mechanism clips each device's
    gradient or devices mask what they send.

    Attributes:
        present: bool (N_L,), the devices that take part.
        groups: int64 (n,), the lock-step group that each learner is.
        heads: int64 (n, 2), (layer, index) of the learners' heads.
        ranges: {head layer: the range of its learners}.
        unit_of_device: int64 (N_L,); -1 for devices that do not take part.
        learner_of_unit: int64 (u,), non-decreasing.
        shares: float64 (u,), the weight of each unit's gradient in the learner's.
    """

    present: np.ndarray
    groups: np.ndarray
    heads: np.ndarray
    ranges: dict[int, range]
    unit_of_device: np.ndarray
    learner_of_unit: np.ndarray
    shares: np.ndarray

    @property
    def device_of_unit(self) -> np.ndarray:
        """int64 (u,), where units are devices."""
        return np.argsort(self.unit_of_device, kind="stable")[-len(self.learner_of_unit) :]

    def units_of(self, learners: range) -> slice:
        """The units of a range of learners."""
        start, stop = np.searchsorted(self.learner_of_unit, [learners.start, learners.stop])
        return slice(int(start), int(stop))


def form_learners(
    network: Network, mechanism: Protection, present: np.ndarray, by_device: bool = False
) -> Learners:
    """The learners of a round, in which some devices take part, bool (N_L,).

    Args:
        by_device: whether every device sums a gradient of its own, whatever is clipped.
    """
    lock_step = mechanism.lock_step
    groups = learning_groups(lock_step, present, network.tree.depth)
    heads = lock_step.nodes[groups]
    layers, starts = np.unique(heads[:, 0], return_index=True)
    ends = [*starts[1:].tolist(), len(groups)] if len(groups) else []
    learner_of_group = np.full(len(lock_step.nodes), -1)
    learner_of_group[groups] = np.arange(len(groups))
    learner_of_device = np.where(present, learner_of_group[lock_step.group_of], -1)
    if mechanism.clipping.batch_norm is None and not by_device:
        units, learner_of_unit = learner_of_device, np.arange(len(groups))
        shares = np.ones(len(groups))
    else:
        devices = np.flatnonzero(present)
        devices = devices[np.argsort(learner_of_device[devices], kind="stable")]
        units = np.full(len(present), -1)
        units[devices] = np.arange(len(devices))
        learner_of_unit = learner_of_device[devices]
        clipped = mechanism.clipping.batch_norm is not None
        shares = lock_step.weights[devices] if clipped else np.ones(len(devices))
    return Learners(
        present,
        groups,
        heads,
        {
            int(layer): range(int(start), end)
            for layer, start, end in zip(layers, starts, ends, strict=True)
        },
        units,
        learner_of_unit,
        shares,
    )


def learning_groups(lock_step: LockStep, present: np.ndarray, depth: int) -> np.ndarray:
    """The lock-step groups that learn in a round: int64 (n,). A server's does even without devices
    that are present, bool (N_L,): its absence would tell that nobody came."""
    head_layers = lock_step.nodes[lock_step.group_of, 0]
    return np.unique(lock_step.group_of[present | (head_layers < depth)])


def draw_minibatches(
    learners: Learners,
    mechanism: Protection,
    shards: Shards,
    streams: Streams,
    round_: int,
    taking_part: Sequence[np.ndarray],
    first_record: int = 0,
) -> tuple[Minibatches, ...]:
    """The records that every unit uses in local steps k = 1…K, weighed so that their gradients sum
    up to the unit's.

    Args:
        taking_part: bool (N_L,) for every step, the devices whose gradients count.
        first_record: place of the shards' first record among all.
    """
    n_devices = len(shards.sizes)
    owners = np.repeat(np.arange(n_devices), shards.sizes)
    in_order = bool((np.diff(learners.unit_of_device[learners.present]) >= 0).all())
    whole = bool((shards.rates == 1).all())
    dtype = np.float64 if shards.features.dtype == torch.float64 else np.float32

    def minibatches(step: int) -> Minibatches:
        counting = taking_part[step - 1]
        rates = np.repeat(shards.rates * counting, shards.sizes)
        positions = poisson_draw(rates, streams, round_, step, first_record)
        if shards.absent is not None:
            positions = positions[~np.isin(positions, shards.absent)]
        devices = owners[positions]
        units = learners.unit_of_device[devices]
        weights = _device_weights(mechanism, shards, np.bincount(devices, minlength=n_devices))
        weights = weights[devices]
        if not in_order:
            order = np.argsort(units, kind="stable")
            positions, weights, units = positions[order], weights[order], units[order]
        counts = np.bincount(units, minlength=len(learners.learner_of_unit))
        return Minibatches(
            shards.features,
            shards.labels,
            np.append(positions, 0),
            np.append(weights, 0.0).astype(dtype),
            np.concatenate([[0], np.cumsum(counts)]),
            # Devices of one learner are neighbours, and so are their whole shards.
            consecutive=whole and bool(counting.all()) and shards.absent is None,
        )

    steps = range(1, len(taking_part) + 1)
    if whole and all(devices is taking_part[0] for devices in taking_part):
        return (minibatches(1),) * len(taking_part)
    return tuple(minibatches(step) for step in steps)


def minibatch_law(mechanism: Protection, shards: Shards) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, float64 (u,), of the records of a unit in a step, if all take part."""
    means = shards.rates * shards.sizes
    variances = means * (1 - shards.rates)
    if mechanism.clipping.batch_norm is not None:
        return means, variances
    group_of = mechanism.lock_step.group_of
    return np.bincount(group_of, weights=means), np.bincount(group_of, weights=variances)


def _device_weights(mechanism: Protection, shards: Shards, drawn: np.ndarray) -> np.ndarray:
    if mechanism.clipping.divide_by == "expected":
        sizes = shards.rates * (shards.sizes if shards.nominal is None else shards.nominal)
    else:
        sizes = np.maximum(drawn, 1)
    share = 1.0 if mechanism.clipping.batch_norm is not None else mechanism.lock_step.weights
    return share / sizes
