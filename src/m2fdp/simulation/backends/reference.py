"""One record at a time: slow, and plain enough to check by eye."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from m2fdp.models.registry import Model
from m2fdp.simulation.clipping import ClipFactor, flat_clip, unbounded
from m2fdp.simulation.minibatches import Minibatches


@dataclass(frozen=True)
class ReferenceBackend:
    """The definition, written out."""

    model: Model
    clip_factor: ClipFactor = flat_clip
    group: int = 1

    def add_gradients(
        self,
        into: Tensor,
        alpha: float,
        models: Tensor,
        batches: Minibatches,
        clipping_norm: float | None,
        by_class: bool = False,
    ) -> None:
        sums = torch.zeros_like(models)
        for learner, vector in enumerate(models):
            for feature, label, weight in zip(*batches.records(learner), strict=True):
                parameters = vector.clone().requires_grad_()
                scores = self.model.scores(parameters, feature[None])
                loss = self.model.loss(scores, label[None]).sum()
                (gradient,) = torch.autograd.grad(loss, parameters)
                if clipping_norm is not None and by_class:
                    rows = gradient.view(scores.shape[-1], -1)
                    gradient = self._clipped(rows, clipping_norm / len(rows) ** 0.5).flatten()
                elif clipping_norm is not None:
                    gradient = self._clipped(gradient, clipping_norm)
                sums[learner] += weight * gradient
        into.add_(sums, alpha=alpha)

    def _clipped(self, gradients: Tensor, clipping_norm: float) -> Tensor:
        """Each row (…, M), or zero where nothing bounds it."""
        norms = gradients.norm(dim=-1, keepdim=True)
        lost = unbounded(norms, clipping_norm)
        if lost is not None:
            gradients = gradients.masked_fill(lost, 0.0)
            norms = norms.masked_fill(lost, 0.0)
        return gradients * self.clip_factor(norms, clipping_norm)
