"""The devices' records on the compute device, and which of them a local step uses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

# Of all records, some: a range, or their places int64 (b,).
Rows = slice | Tensor


@dataclass(frozen=True, eq=False)
class Shards:
    """The devices' training records on the compute device.

    Attributes:
        features: (R, C, H, W), all records in device order.
        labels: int64 (R,).
        sizes: int64 (N_L,), D_j; their sum is R.
        rates: float64 (N_L,), q_j.
        nominal: (N_L,), the public D_j that a mechanism divides by; None = sizes.
        absent: int64 (a,), places of records that are drawn and add nothing, for a neighbouring
            data set; None = no record.
    """

    features: Tensor
    labels: Tensor
    sizes: np.ndarray
    rates: np.ndarray
    nominal: np.ndarray | None = None
    absent: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Minibatches:
    """The records that n learners use in one step, copied only when a backend asks for them.

    Attributes:
        features: (R, C, H, W), all records.
        labels: int64 (R,).
        positions: int64 (m + 1,), places of the records in use, learner after learner; the last
            pads learners with few records.
        weights: (m + 1,), weights of these records in their learners' sums; the last is zero.
        offsets: int64 (n + 1,); learner i uses positions[offsets[i]:offsets[i + 1]].
        consecutive: whether the positions of every learner follow one another.
    """

    features: Tensor
    labels: Tensor
    positions: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray
    consecutive: bool

    @property
    def counts(self) -> np.ndarray:
        """int64 (n,), the number of each learner's records; zero is legal."""
        return np.diff(self.offsets)

    def select(self, part: slice) -> Minibatches:
        """The minibatches of a range of learners."""
        return replace(self, offsets=self.offsets[part.start : part.stop + 1])

    def records(
        self, learner: int, skip: int = 0, buffer: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Features (b, C, H, W), labels (b,) and weights (b,) of a learner's records after the
        first `skip`. Scattered features are written into a buffer (at least b, C, H, W)."""
        start, stop = int(self.offsets[learner]) + skip, int(self.offsets[learner + 1])
        weights = self._on_device(self.weights[start:stop])
        rows = self.rows(learner, skip)
        if isinstance(rows, slice):
            return self.features[rows], self.labels[rows], weights
        room = None if buffer is None else buffer[: len(rows)]
        features = torch.index_select(self.features, 0, rows, out=room)
        return features, self.labels.index_select(0, rows), weights

    def rows(self, learner: int, skip: int = 0) -> Rows:
        """Places of one learner's records among all."""
        start, stop = int(self.offsets[learner]) + skip, int(self.offsets[learner + 1])
        if self.consecutive and stop > start:
            first = int(self.positions[start])
            return slice(first, first + stop - start)
        return self._on_device(self.positions[start:stop])

    def padded(
        self, width: int, buffer: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features (n, width, C, H, W) of the first records, in a buffer (at least n * width, C, H,
        W), and (n, width) their labels, weights and places.

        Padding has weight zero and repeats the learner's own records, or zeros where it has none:
        a record with an infinite gradient must not reach another learner.
        """
        ends = self.offsets[1:, None]
        places = self.offsets[:-1, None] + np.arange(width)
        chosen = self._on_device(self.positions[np.minimum(places, ends - 1).ravel()])
        np.putmask(places, places >= ends, len(self.positions) - 1)
        room = None if buffer is None else buffer[: len(chosen)]
        # `index_select` is several times faster than indexing.
        features = torch.index_select(self.features, 0, chosen, out=room).unflatten(0, places.shape)
        for learner in np.flatnonzero(self.counts == 0).tolist():
            features[learner].zero_()
        return (
            features,
            self.labels.index_select(0, chosen).view(places.shape),
            self._on_device(self.weights[places]),
            chosen.view(places.shape),
        )

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=self.features.device)
