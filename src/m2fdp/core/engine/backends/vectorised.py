"""Vectorised over the learners of a group, for any model: what suits a GPU."""

from dataclasses import dataclass

import torch
from torch import Tensor

from m2fdp.core.engine.clipping import ClipFactor, clip_factors, flat_clip
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import Clipping

_WIDTH_MULTIPLE = 8


@dataclass(frozen=True)
class StackedBackend:
    """One vectorised gradient for a group of learners.

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

    def _group_sums(
        self, models: Tensor, batches: Minibatches, clipping_norm: float | None
    ) -> Tensor:
        def weighted_loss(
            vector: Tensor, features: Tensor, labels: Tensor, weights: Tensor
        ) -> Tensor:
            losses = self.model.loss(self.model.scores(vector, features), labels)
            return (losses * weights).sum()

        width = max(1, -(-int(batches.counts.max()) // _WIDTH_MULTIPLE)) * _WIDTH_MULTIPLE
        features, labels, weights, _ = batches.padded(width)
        if clipping_norm is None:
            per_learner = torch.func.vmap(torch.func.grad(weighted_loss))
            return per_learner(models, features, labels, weights)
        per_record = torch.func.vmap(torch.func.grad(weighted_loss), in_dims=(None, 0, 0, 0))
        # Weights may be zero or small, so gradients are clipped before they are weighted.
        gradients = torch.func.vmap(per_record)(
            models, features[:, :, None], labels[..., None], torch.ones_like(weights)[..., None]
        )
        norms = gradients.norm(dim=-1)
        factors, lost = clip_factors(norms, clipping_norm, self.clip_factor)
        if lost is not None:
            gradients = gradients.masked_fill(lost[..., None], 0.0)
        return torch.einsum("nb,nbm->nm", weights * factors, gradients)
