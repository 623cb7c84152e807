"""Who computes in a round, and on which records: participants, learners and their minibatches.

A learner is a lock-step group of the mechanism: a device alone, or a trusted server with the data
of all devices below it. Records are drawn by Poisson sampling (J eq. 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.noise import WORDS
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.streams import Streams
from m2fdp.core.topology.network import Network

# A model that draws gets numbers as float32, exact up to so many bits.
_BITS = 24
# Of all records, some: a range, or their places int64 (b,).
Rows = slice | Tensor


@dataclass(frozen=True, eq=False)
class Shards:
    """The devices' training records on the compute device."""

    features: Tensor  # (R, C, H, W), all records in device order
    labels: Tensor  # int64 (R,)
    sizes: np.ndarray  # int64 (N_L,), D_j; their sum is R
    rates: np.ndarray  # float64 (N_L,), q_j
    nominal: np.ndarray | None = None  # (N_L,), public D_j that a mechanism divides by; None: sizes
    # int64 (a,), places of records that are drawn and add nothing, for a neighbouring data set.
    absent: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Learners:
    """The learners of one round, by the layers of their heads.

    A unit sums one gradient. It is a learner; or a device, where the mechanism clips each device's
    gradient or devices mask what they send.
    """

    present: np.ndarray  # bool (N_L,), the devices that take part
    groups: np.ndarray  # int64 (n,), the lock-step group that each learner is
    heads: np.ndarray  # int64 (n, 2), (layer, index) of the learners' heads
    ranges: dict[int, range]  # {head layer: the range of its learners}
    unit_of_device: np.ndarray  # int64 (N_L,); -1 for devices that do not take part
    learner_of_unit: np.ndarray  # int64 (u,), non-decreasing
    shares: np.ndarray  # float64 (u,), the weight of each unit's gradient in the learner's

    @property
    def device_of_unit(self) -> np.ndarray:
        """int64 (u,), where units are devices."""
        return np.argsort(self.unit_of_device, kind="stable")[-len(self.learner_of_unit) :]

    def units_of(self, learners: range) -> slice:
        """The units of a range of learners."""
        start, stop = np.searchsorted(self.learner_of_unit, [learners.start, learners.stop])
        return slice(int(start), int(stop))


@dataclass(frozen=True, eq=False)
class Minibatches:
    """The records that n units use in one step, copied only when a backend asks for them."""

    features: Tensor  # (R, C, H, W), all records
    labels: Tensor  # int64 (R,)
    # int64 (m + 1,), places of the records in use, unit after unit; the last pads units with few.
    positions: np.ndarray
    weights: np.ndarray  # (m + 1,), of these records in their units' sums; the last is zero
    offsets: np.ndarray  # int64 (n + 1,); unit i uses positions[offsets[i]:offsets[i + 1]]
    consecutive: bool  # whether the positions of every unit follow one another
    # Of 48 bits, for a model that draws of each record; None: it draws nothing.
    key: int | None = None

    @property
    def counts(self) -> np.ndarray:
        """int64 (n,), the number of each unit's records; zero is legal."""
        return np.diff(self.offsets)

    def select(self, part: slice) -> Minibatches:
        """The minibatches of a range of units."""
        return replace(self, offsets=self.offsets[part.start : part.stop + 1])

    def records(
        self, unit: int, skip: int = 0, buffer: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Features (b, C, H, W), labels (b,) and weights (b,) of a unit's records after the first
        `skip`. Scattered features are written into a buffer (at least b, C, H, W).

        With a key features are (b, C * H * W + 2): behind them stand the key's halves.
        """
        weights = self._on_device(self.weights[self._places(unit, skip)])
        rows = self.rows(unit, skip)
        if isinstance(rows, slice):
            return self._keyed(self.features[rows]), self.labels[rows], weights
        room = None if buffer is None else buffer[: len(rows)]
        features = self._keyed(torch.index_select(self.features, 0, rows, out=room))
        return features, self.labels.index_select(0, rows), weights

    def rows(self, unit: int, skip: int = 0) -> Rows:
        """Places of one unit's records among all."""
        positions = self.positions[self._places(unit, skip)]
        if self.consecutive and len(positions):
            first = int(positions[0])
            return slice(first, first + len(positions))
        return self._on_device(positions)

    def padded(
        self, width: int, buffer: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features (n, width, C, H, W) of the first records, in a buffer (at least n * width, C, H,
        W), and (n, width) their labels, weights and places.

        Padding has weight zero and repeats the unit's own records, or zeros where it has none: a
        record with an infinite gradient must not reach another unit.
        """
        ends = self.offsets[1:, None]
        places = self.offsets[:-1, None] + np.arange(width)
        chosen = self._on_device(self.positions[np.minimum(places, ends - 1).ravel()])
        np.putmask(places, places >= ends, len(self.positions) - 1)
        room = None if buffer is None else buffer[: len(chosen)]
        # `index_select` is several times faster than indexing.
        features = self._keyed(torch.index_select(self.features, 0, chosen, out=room))
        features = features.unflatten(0, places.shape)
        for unit in np.flatnonzero(self.counts == 0).tolist():
            features[unit].zero_()
        labels = self.labels.index_select(0, chosen).view(places.shape)
        return features, labels, self._on_device(self.weights[places]), chosen.view(places.shape)

    def _keyed(self, features: Tensor) -> Tensor:
        if self.key is None:
            return features
        halves = features.new_tensor([self.key % 2**_BITS, self.key >> _BITS])
        return torch.cat([features.flatten(1), halves.expand(len(features), 2)], dim=1)

    def _places(self, unit: int, skip: int) -> slice:
        return slice(int(self.offsets[unit]) + skip, int(self.offsets[unit + 1]))

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=self.features.device)


def sampling_rates(sizes: np.ndarray, batch_size: float | None) -> np.ndarray:
    """q_j = min(1, B/D_j) per device, float64; B null means the whole shard."""
    return np.ones(len(sizes)) if batch_size is None else np.minimum(1.0, batch_size / sizes)


def poisson_draw(
    rates: np.ndarray, streams: Streams, round_: int, step: int, first: int = 0
) -> np.ndarray:
    """The records of one local step: int64 (m,), positions in order. Each enters independently with
    its probability in rates, float64 (R,).

    A step has its own stream; a record's number there is its position among all records. `first` is
    that of the part's first record.
    """
    if ((rates == 0.0) | (rates == 1.0)).all():
        return np.flatnonzero(rates)
    stream = streams.generator("minibatch", round_, step)
    skipped_words, rest = divmod(first, WORDS)  # a number is made of one word
    cast(np.random.Philox, stream.bit_generator).advance(skipped_words)
    stream.random(rest)
    return np.flatnonzero(stream.random(len(rates)) < rates)


def draw_participants(network: Network, streams: Streams, round_: int) -> np.ndarray:
    """The devices that take part in a round, bool (N_L,): a number below each lowest server, drawn
    uniformly, or each with a probability."""
    tree, present = network.tree, network.present
    if network.participation is not None:
        drawn = streams.generator("participation", round_).random(tree.n_devices)
        return drawn < network.participation.rate
    if (present == tree.n_children(tree.depth - 1)).all():
        return np.ones(tree.n_devices, dtype=bool)
    order = streams.generator("participants", round_).random(tree.n_devices)
    return tree.sibling_rank(order) < present[tree.parents[-1]]


def form_learners(
    network: Network, mechanism: Protection, present: np.ndarray, by_device: bool = False
) -> Learners:
    """The learners of a round, in which some devices take part, bool (N_L,); `by_device` every
    device sums a gradient of its own, whatever is clipped.

    A server learns even without a device that is present: its absence would tell that nobody came.
    """
    lock_step, clipped = mechanism.lock_step, mechanism.clipping.batch_norm is not None
    below_server = lock_step.nodes[lock_step.group_of, 0] < network.tree.depth
    groups = np.unique(lock_step.group_of[present | below_server])
    heads = lock_step.nodes[groups]
    layers, starts = np.unique(heads[:, 0], return_index=True)
    ends = np.append(starts, len(groups)).tolist()[1:]
    learner_of_group = np.full(len(lock_step.nodes), -1)
    learner_of_group[groups] = np.arange(len(groups))
    learner_of_device = np.where(present, learner_of_group[lock_step.group_of], -1)
    units, learner_of_unit = learner_of_device, np.arange(len(groups))
    devices = np.flatnonzero(present)
    if clipped or by_device:
        devices = devices[np.argsort(learner_of_device[devices], kind="stable")]
        units = np.full(len(present), -1)
        units[devices] = np.arange(len(devices))
        learner_of_unit = learner_of_device[devices]
    return Learners(
        present,
        groups,
        heads,
        {int(layer): range(*of) for layer, *of in zip(layers, starts.tolist(), ends, strict=True)},
        units,
        learner_of_unit,
        lock_step.weights[devices] if clipped else np.ones(len(learner_of_unit)),
    )


def draw_minibatches(
    learners: Learners,
    mechanism: Protection,
    shards: Shards,
    streams: Streams,
    round_: int,
    taking_part: Sequence[np.ndarray],
    first_record: int = 0,
    keyed: bool = False,
) -> tuple[Minibatches, ...]:
    """The records that every unit uses in local steps k = 1…K, weighed so that their gradients sum
    up to the unit's. In each step some devices are `taking_part`, bool (N_L,). A model that draws
    of records needs them `keyed`."""
    n_devices = len(shards.sizes)
    owners = np.repeat(np.arange(n_devices), shards.sizes)
    in_order = bool((np.diff(learners.unit_of_device[learners.present]) >= 0).all())
    whole = bool((shards.rates == 1).all())
    dtype = np.float64 if shards.features.dtype == torch.float64 else np.float32

    def key(step: int) -> int | None:
        stream = streams.generator("model", round_, step) if keyed else None
        return None if stream is None else int(stream.integers(2 ** (2 * _BITS)))

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
            key=key(step),
        )

    if whole and all(devices is taking_part[0] for devices in taking_part):
        every = (minibatches(1),) * len(taking_part)
        return (
            tuple(replace(of, key=key(step)) for step, of in enumerate(every, 1))
            if keyed
            else every
        )
    return tuple(minibatches(step) for step in range(1, len(taking_part) + 1))


def minibatch_law(mechanism: Protection, shards: Shards) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, float64 (u,), of the records of a unit in a step, if all take part."""
    means = shards.rates * shards.sizes
    variances = means * (1 - shards.rates)
    if mechanism.clipping.batch_norm is not None:
        return means, variances
    group_of = mechanism.lock_step.group_of
    return np.bincount(group_of, weights=means), np.bincount(group_of, weights=variances)


def _device_weights(mechanism: Protection, shards: Shards, drawn: np.ndarray) -> np.ndarray:
    clipping, sizes = mechanism.clipping, np.maximum(drawn, 1)
    if clipping.divide_by == "expected":
        sizes = shards.rates * (shards.sizes if shards.nominal is None else shards.nominal)
    return (1.0 if clipping.batch_norm is not None else mechanism.lock_step.weights) / sizes
