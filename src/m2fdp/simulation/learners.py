"""Who computes in a round: learners, and the records that each uses in a step.

A learner is a lock-step group of the mechanism: a device alone, or a trusted server with all
devices below it, which is one learner with the data of all its devices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from m2fdp.privacy.mechanisms import Mechanism
from m2fdp.simulation.records import Minibatches, Shards
from m2fdp.simulation.sampling import Draw, draw_participants, poisson_draw
from m2fdp.topology.network import Network


@dataclass(frozen=True, eq=False)
class Cast:
    """The learners of one round, those whose head is nearest the cloud first.

    A unit is what sums one gradient: a learner, or, where the mechanism clips the gradient of
    every device, each device of the learners.

    Attributes:
        present: bool (N_L,), the devices that take part.
        groups: int64 (n,), the lock-step group that each learner is.
        heads: int64 (n, 2), (layer, index) of the learners' heads.
        first_devices: int64 (n,), one device below each head.
        blocks: {head layer: the range of its learners}.
        unit_of_device: int64 (N_L,); -1 for devices that do not take part.
        learner_of_unit: int64 (u,), non-decreasing.
        shares: float64 (u,), the weight of each unit's gradient in the learner's.
    """

    present: np.ndarray
    groups: np.ndarray
    heads: np.ndarray
    first_devices: np.ndarray
    blocks: dict[int, range]
    unit_of_device: np.ndarray
    learner_of_unit: np.ndarray
    shares: np.ndarray

    def units_of(self, learners: range) -> slice:
        """The units of a range of learners."""
        start, stop = np.searchsorted(self.learner_of_unit, [learners.start, learners.stop])
        return slice(int(start), int(stop))


def draw_cast(network: Network, mechanism: Mechanism, seed: int, round_: int) -> Cast:
    """The learners of round t, some devices of which take part."""
    lock_step = mechanism.lock_step
    present = draw_participants(network, seed, round_)
    groups, first = np.unique(lock_step.group_of[present], return_index=True)
    heads = lock_step.nodes[groups]
    layers, starts = np.unique(heads[:, 0], return_index=True)
    ends = [*starts[1:].tolist(), len(groups)]
    learner_of_group = np.full(len(lock_step.nodes), -1)
    learner_of_group[groups] = np.arange(len(groups))
    learner_of_device = np.where(present, learner_of_group[lock_step.group_of], -1)
    if mechanism.clipping.batch_norm is None:
        units, learner_of_unit = learner_of_device, np.arange(len(groups))
        shares = np.ones(len(groups))
    else:
        devices = np.flatnonzero(present)
        devices = devices[np.argsort(learner_of_device[devices], kind="stable")]
        units = np.full(len(present), -1)
        units[devices] = np.arange(len(devices))
        learner_of_unit = learner_of_device[devices]
        shares = lock_step.weights[devices]
    return Cast(
        present,
        groups,
        heads,
        np.flatnonzero(present)[first],
        {
            int(layer): range(int(start), end)
            for layer, start, end in zip(layers, starts, ends, strict=True)
        },
        units,
        learner_of_unit,
        shares,
    )


def draw_minibatches(
    cast: Cast, mechanism: Mechanism, shards: Shards, seed: int, round_: int, step: int
) -> Minibatches:
    """The records that every unit uses in one step, weighted so that their sum is its gradient."""
    draw = poisson_draw(shards.sizes, shards.rates, cast.present, seed, round_, step)
    whole = bool((shards.rates == 1).all())
    owners = np.repeat(np.arange(len(draw.counts)), draw.counts)
    units = cast.unit_of_device[owners]
    positions, weights = draw.positions, _device_weights(mechanism, shards, draw)[owners]
    if (np.diff(units) < 0).any():
        order = np.argsort(units, kind="stable")
        positions, weights, units = positions[order], weights[order], units[order]
    counts = np.bincount(units, minlength=len(cast.learner_of_unit))
    return Minibatches(
        shards.features,
        shards.labels,
        positions,
        weights,
        np.concatenate([[0], np.cumsum(counts)]),
        # Devices of one learner are neighbours, and so are their whole shards.
        consecutive=whole and bool(cast.present.all()),
    )


def minibatch_law(mechanism: Mechanism, shards: Shards) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, float64 (u,), of the records that a unit uses, if all take part."""
    means = shards.rates * shards.sizes
    variances = means * (1 - shards.rates)
    if mechanism.clipping.batch_norm is not None:
        return means, variances
    group_of = mechanism.lock_step.group_of
    return np.bincount(group_of, weights=means), np.bincount(group_of, weights=variances)


def _device_weights(mechanism: Mechanism, shards: Shards, draw: Draw) -> np.ndarray:
    """The weight of each device's records: over the minibatch size, times the device's share."""
    if mechanism.clipping.divide_by == "expected":
        sizes = shards.rates * shards.sizes
    else:
        sizes = np.maximum(draw.counts, 1)
    share = 1.0 if mechanism.clipping.batch_norm is not None else mechanism.lock_step.weights
    return share / sizes
