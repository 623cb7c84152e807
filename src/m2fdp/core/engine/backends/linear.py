"""Matrix products for linear models; no gradient of a single record is ever formed.

A record's gradient is the outer product of its error and its features, so its norm is the
product of their norms.
"""

from dataclasses import dataclass, field
from math import ceil

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.clipping import ClipFactor, clip_factors, flat_clip, lengths
from m2fdp.core.engine.minibatches import Minibatches, Rows
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import Clipping

# Batched products over so many rows, or a multiple, round alike for any number of learners.
_ROW_MULTIPLE = 8
# Beyond so many records a product for each learner costs less than padding all to one width.
_WIDEST = 128
# A product is faster over so many records at a time; what a record's scores are does not change.
_RECORDS_AT_A_TIME = 768


def padded_width(counts: np.ndarray, variances: np.ndarray) -> int:
    """The number of a learner's records that are stacked with others': a typical minibatch and
    about 1.5 standard deviations of its size; 0 = too many to stack."""
    typical = float(np.median(counts + 1.5 * np.sqrt(variances)))
    width = ceil(typical / _ROW_MULTIPLE) * _ROW_MULTIPLE
    return width if width <= _WIDEST else 0


@dataclass(eq=False)
class StackedLinearBackend:
    """The first `width` records of all learners in one batched product; the others of a larger
    minibatch in products of the learner's own."""

    model: Model
    width: int
    clip_factor: ClipFactor = flat_clip
    group: int = 1
    # Used again from step to step: fresh memory costs as much as what is written into it.
    _buffers: dict[str, Tensor] = field(default_factory=dict, init=False)

    def add_gradients(
        self, target: Tensor, alpha: float, models: Tensor, batches: Minibatches, clip: Clipping
    ) -> None:
        n = len(models)
        if n == 0:
            return
        n_features = batches.features[0].numel()
        matrices = models.view(n, -1, n_features)
        targets = target.view(matrices.shape)

        def factors(
            scores: Tensor, features: Tensor, labels: Tensor, weights: Tensor, rows: Rows
        ) -> tuple[Tensor, Tensor]:
            """Weighed derivatives of clipped losses (..., C, b), and their features (..., b, D)."""
            derivatives, weights = self.model.score_gradients(scores, labels), weights[..., None, :]
            norm = clip.record_norm
            if norm is None:
                return derivatives * weights, features
            lengths = self._lengths(batches.features)[rows]
            # `norm` takes four times as long, and more, where it is not the last dimension.
            norms = lengths[..., None, :] * derivatives.square().sum(-2, keepdim=True).sqrt()
            bounds, lost = clip_factors(norms, norm, self.clip_factor)
            if lost is not None:
                derivatives = derivatives.masked_fill(lost, 0.0)
                features = features.masked_fill(~lengths.isfinite()[..., None], 0.0)
            return derivatives * (weights * bounds), features

        counts = batches.counts
        # Before any row of `target`, which may be `models`, changes.
        products = []
        for learner in np.flatnonzero(counts > self.width).tolist():
            room = None if self.width else self._buffer(int(counts[learner]), batches.features)
            features, labels, weights = batches.records(learner, self.width, room)
            features = features.flatten(1)
            scores = _scores(matrices[learner], features)
            rows = batches.rows(learner, skip=self.width)
            product = factors(scores, features, labels, weights, rows)
            if self.width:
                products.append((learner, *product))
            else:
                targets[learner].addmm_(*product, alpha=alpha)
        if self.width:
            buffer = self._buffer(n * self.width, batches.features)
            features, labels, weights, rows = batches.padded(self.width, buffer)
            features = features.flatten(2)
            scores = torch.bmm(matrices, features.mT)
            targets.baddbmm_(*factors(scores, features, labels, weights, rows), alpha=alpha)
        for learner, errors, inputs in products:
            targets[learner].addmm_(errors, inputs, alpha=alpha)

    def _lengths(self, features: Tensor) -> Tensor:
        """The norms (R,) of all records' features, which stay the same in a run."""
        if self._buffers.get("records") is not features:
            self._buffers["records"] = features
            self._buffers["lengths"] = lengths(features.flatten(1))
        return self._buffers["lengths"]

    def _buffer(self, n_records: int, features: Tensor) -> Tensor:
        """Room for features (n, C, H, W)."""
        buffer = self._buffers.get("features")
        if buffer is None or len(buffer) < n_records:
            buffer = self._buffers["features"] = features.new_empty(n_records, *features.shape[1:])
        return buffer


def _scores(matrix: Tensor, features: Tensor) -> Tensor:
    """The scores (C, b) of records (b, D) by a model (C, D)."""
    n_records, at_a_time = len(features), _RECORDS_AT_A_TIME
    scores = matrix.new_empty(len(matrix), n_records)
    # Nothing short is left for the end: few records have a kernel that rounds in another way.
    starts = range(0, max(n_records - at_a_time, 0) + 1, at_a_time)
    for start in starts:
        part = slice(start, n_records if start == starts[-1] else start + at_a_time)
        torch.mm(matrix, features[part].T, out=scores[:, part])
    return scores
