"""Backends: the weighed sum, over a learner's records, of the loss's gradients at its model, each
clipped to a norm if asked. All agree to rounding; tests compare each with the plain reference."""

from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.clipping import clip_factors, clip_rows, lengths
from m2fdp.core.engine.minibatches import Minibatches, Rows
from m2fdp.core.engine.rules import ClipFactor, flat_clip
from m2fdp.core.engine.sequential import SequentialBackend
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import Clipping

# Widths are multiples of it. Batched products over so many rows, or a multiple, round alike for any
# number of learners.
_WIDTH_MULTIPLE = 8
# Beyond so many records a product for each learner costs less than padding all to one width.
_WIDEST = 128
# A product is faster over so many records at a time; what a record's scores are does not change.
_RECORDS_AT_A_TIME = 768


class Backend(Protocol):
    """Sums of record gradients for a range of learners, which starts at a multiple of `group`."""

    @property
    def group(self) -> int:
        """The number of learners that are computed together."""

    def add_gradients(
        self, target: Tensor, alpha: float, models: Tensor, batches: Minibatches, clip: Clipping
    ) -> None:
        """Add to each row of `target` alpha times the learner's sum, in place.

        Args:
            target: (n, M); `models` itself makes the addition a gradient step.
            models: (n, M), where the gradients are taken.
            batches: records of the same n learners.
            clip: bounds; `record_norm` holds for each record's gradient before its weight. A
                gradient without a finite norm counts as zero: nothing else bounds it.
        """


def build_backend(
    model: Model,
    name: str,
    minibatch_law: tuple[np.ndarray, np.ndarray],
    device: torch.device,
    clip_factor: ClipFactor = flat_clip,
) -> Backend:
    """The backend of a name, `auto`, `reference`, `sequential` or `stacked`.

    `auto` measured best (benchmarks/): linear models and those on a GPU are stacked; others go one
    learner after the other.

    Args:
        minibatch_law: mean and variance, float64 (n,), of the number of each learner's records.
    """
    if name == "reference":
        return ReferenceBackend(model, clip_factor)
    if name == "sequential" or (name == "auto" and not model.linear and device.type == "cpu"):
        return SequentialBackend(model, clip_factor)
    if model.linear:
        return StackedLinearBackend(model, padded_width(*minibatch_law), clip_factor)
    return StackedBackend(model, clip_factor)


@dataclass(frozen=True)
class ReferenceBackend:
    """One record at a time: slow, and plain enough to check by eye."""

    model: Model
    clip_factor: ClipFactor = flat_clip
    group: int = 1

    def add_gradients(
        self, target: Tensor, alpha: float, models: Tensor, batches: Minibatches, clip: Clipping
    ) -> None:
        sums = torch.zeros_like(models)
        for learner, vector in enumerate(models):
            for feature, label, weight in zip(*batches.records(learner), strict=True):
                parameters = vector.clone().requires_grad_()
                scores = self.model.scores(parameters, feature[None])
                loss = self.model.loss(scores, label[None]).sum()
                (gradient,) = torch.autograd.grad(loss, parameters)
                if clip.record_norm is not None:
                    clip_rows(gradient[None], clip.record_norm, self.clip_factor)
                sums[learner] += weight * gradient
        target.add_(sums, alpha=alpha)


@dataclass(frozen=True)
class StackedBackend:
    """One vectorised gradient for a group of learners, for any model: what suits a GPU.

    Vectorised kernels round differently for different numbers of learners, so groups are of
    fixed size and start at multiples of it.
    """

    model: Model
    clip_factor: ClipFactor = flat_clip
    group: int = 50

    def add_gradients(
        self, target: Tensor, alpha: float, models: Tensor, batches: Minibatches, clip: Clipping
    ) -> None:
        for start in range(0, len(models), self.group):
            part = slice(start, min(start + self.group, len(models)))
            sums = self._group_sums(models[part], batches.select(part), clip.record_norm)
            target[part].add_(sums, alpha=alpha)

    def _group_sums(self, models: Tensor, batches: Minibatches, norm: float | None) -> Tensor:
        def weighted_loss(
            vector: Tensor, features: Tensor, labels: Tensor, weights: Tensor
        ) -> Tensor:
            losses = self.model.loss(self.model.scores(vector, features), labels)
            return (losses * weights).sum()

        width = max(1, -(-int(batches.counts.max()) // _WIDTH_MULTIPLE)) * _WIDTH_MULTIPLE
        features, labels, weights, _ = batches.padded(width)
        gradient = torch.func.grad(weighted_loss)
        if norm is None:
            return torch.func.vmap(gradient)(models, features, labels, weights)
        per_record = torch.func.vmap(torch.func.vmap(gradient, in_dims=(None, 0, 0, 0)))
        # Weights may be zero or small, so gradients are clipped before they are weighted.
        ones = torch.ones_like(weights)[..., None]
        gradients = per_record(models, features[:, :, None], labels[..., None], ones)
        norms = gradients.norm(dim=-1)
        factors, lost = clip_factors(norms, norm, self.clip_factor)
        if lost is not None:
            gradients = gradients.masked_fill(lost[..., None], 0.0)
        return torch.einsum("nb,nbm->nm", weights * factors, gradients)


@dataclass(eq=False)
class StackedLinearBackend:
    """Matrix products for linear models; no gradient of a single record is ever formed.

    A record's gradient is the outer product of its error and its features, so its norm is the
    product of their norms. The first `width` records of all learners are in one batched product;
    the others of a larger minibatch in products of the learner's own.
    """

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


def padded_width(counts: np.ndarray, variances: np.ndarray) -> int:
    """The number of a learner's records that are stacked with others': a typical minibatch and
    about 1.5 standard deviations of its size; 0 = too many to stack."""
    typical = float(np.median(counts + 1.5 * np.sqrt(variances)))
    width = ceil(typical / _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE
    return width if width <= _WIDEST else 0


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
