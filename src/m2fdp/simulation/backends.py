"""Local gradients of many devices: a plain reference loop and a stacked backend.

Both answer one question: for each device of a chunk, the sum over its minibatch of the
records' loss gradients, each clipped to a norm if asked. They agree to rounding; the tests
hold one against the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from m2fdp.models.registry import Model


@dataclass(frozen=True, eq=False)
class Minibatches:
    """The minibatches of n devices, padded to one width B with masked rows.

    Attributes:
        features: (n, B, C, H, W).
        labels: int64 (n, B).
        mask: bool (n, B), False for padding.
    """

    features: Tensor
    labels: Tensor
    mask: Tensor


class Backend(Protocol):
    """Sums of record gradients for a chunk of devices.

    `group` is the number of devices whose arithmetic is done together: a chunk starts at a
    multiple of it, so that no result depends on the chunk size.
    """

    group: int

    def gradient_sums(
        self,
        weights: Tensor,
        batches: Minibatches,
        clipping_norm: float | None,
        by_class: bool = False,
    ) -> Tensor:
        """(n, M): per device, the sum over its records of gradients at weights (n, M).

        Each record's gradient is clipped to `clipping_norm` unless that is None; `by_class`
        clips the part of each of C classes to `clipping_norm` / sqrt(C), for linear models.
        """


@dataclass(frozen=True)
class ReferenceBackend:
    """One record at a time: slow, and plain enough to check by eye."""

    model: Model
    group: int = 1

    def gradient_sums(
        self,
        weights: Tensor,
        batches: Minibatches,
        clipping_norm: float | None,
        by_class: bool = False,
    ) -> Tensor:
        sums = torch.zeros_like(weights)
        for device, record in batches.mask.nonzero().tolist():
            vector = weights[device].clone().requires_grad_()
            scores = self.model.scores(vector, batches.features[device, record, None])
            loss = self.model.loss(scores, batches.labels[device, record, None]).sum()
            (gradient,) = torch.autograd.grad(loss, vector)
            if clipping_norm is not None and by_class:
                rows = gradient.view(scores.shape[-1], -1)
                share = clipping_norm / scores.shape[-1] ** 0.5
                gradient = (rows * clip_factor(rows.norm(dim=1, keepdim=True), share)).flatten()
            elif clipping_norm is not None:
                gradient = gradient * clip_factor(gradient.norm(), clipping_norm)
            sums[device] += gradient
        return sums


@dataclass(frozen=True)
class StackedLinearBackend:
    """Batched matrix products for linear models; no per-sample gradient is ever formed.

    A record's gradient is the outer product of its error and its features, so its norm is
    the product of their norms.
    """

    model: Model
    group: int = 1

    def gradient_sums(
        self,
        weights: Tensor,
        batches: Minibatches,
        clipping_norm: float | None,
        by_class: bool = False,
    ) -> Tensor:
        n, width = batches.mask.shape
        features = batches.features.reshape(n, width, -1)
        matrices = weights.view(n, -1, features.shape[-1])
        scores = torch.bmm(features, matrices.transpose(1, 2)).requires_grad_()
        losses = self.model.loss(scores.flatten(0, 1), batches.labels.flatten())
        (errors,) = torch.autograd.grad(losses.sum(), scores)
        factors = batches.mask.to(errors.dtype)[..., None]
        if clipping_norm is not None:
            norms = features.norm(dim=-1, keepdim=True)
            if by_class:
                share = clipping_norm / errors.shape[-1] ** 0.5
                factors = factors * clip_factor(norms * errors.abs(), share)
            else:
                norms = norms * errors.norm(dim=-1, keepdim=True)
                factors = factors * clip_factor(norms, clipping_norm)
        return torch.bmm((errors * factors).transpose(1, 2), features).view(n, -1)


@dataclass(frozen=True)
class StackedBackend:
    """Vectorised over the devices of a group, for any model.

    Vectorised kernels round differently for different numbers of devices, so groups are of
    fixed size and start at multiples of it.
    """

    model: Model
    group: int = 5

    def gradient_sums(
        self,
        weights: Tensor,
        batches: Minibatches,
        clipping_norm: float | None,
        by_class: bool = False,
    ) -> Tensor:
        if by_class:
            raise ValueError("gradients of models that are not linear have no part of a class")
        parts = [
            self._group_sums(weights[part], _select(batches, part), clipping_norm)
            for part in torch.arange(len(weights)).split(self.group)
        ]
        return torch.cat(parts)

    def _group_sums(
        self,
        weights: Tensor,
        batches: Minibatches,
        clipping_norm: float | None,
        by_class: bool = False,
    ) -> Tensor:
        def masked_loss(vector: Tensor, features: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
            losses = self.model.loss(self.model.scores(vector, features), labels)
            return (losses * mask).sum()

        mask = batches.mask.to(weights.dtype)
        if clipping_norm is None:
            per_device = torch.func.vmap(torch.func.grad(masked_loss))
            return per_device(weights, batches.features, batches.labels, mask)
        per_record = torch.func.vmap(torch.func.grad(masked_loss), in_dims=(None, 0, 0, 0))
        gradients = torch.func.vmap(per_record)(
            weights, batches.features[:, :, None], batches.labels[..., None], mask[..., None]
        )
        factors = clip_factor(gradients.norm(dim=-1), clipping_norm)
        return torch.einsum("nb,nbm->nm", factors, gradients)


def build_backend(model: Model, name: str) -> Backend:
    """`reference`, or `stacked` (also what `auto` chooses) in the form that fits the model."""
    if name == "reference":
        return ReferenceBackend(model)
    return StackedLinearBackend(model) if model.linear else StackedBackend(model)


def clip_factor(norms: Tensor, clipping_norm: float) -> Tensor:
    """min(1, clipping norm / norm), and 1 for a zero norm."""
    return (clipping_norm / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)


def _select(batches: Minibatches, part: Tensor) -> Minibatches:
    return Minibatches(batches.features[part], batches.labels[part], batches.mask[part])
