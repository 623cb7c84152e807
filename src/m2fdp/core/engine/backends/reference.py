"""One record at a time: slow, and plain enough to check by eye."""

from dataclasses import dataclass

import torch
from torch import Tensor

from m2fdp.core.engine.clipping import ClipFactor, clip_factors, flat_clip
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import Clipping


@dataclass(frozen=True)
class ReferenceBackend:
    """The definition, written out."""

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
                    gradient = self._clipped(gradient, clip.record_norm)
                sums[learner] += weight * gradient
        target.add_(sums, alpha=alpha)

    def _clipped(self, gradients: Tensor, clipping_norm: float) -> Tensor:
        """Each gradient (…, M), or zero where nothing bounds it."""
        norms = gradients.norm(dim=-1, keepdim=True)
        factors, lost = clip_factors(norms, clipping_norm, self.clip_factor)
        return (gradients if lost is None else gradients.masked_fill(lost, 0.0)) * factors
