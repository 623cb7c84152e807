"""One learner after the other, for any model: what suits a CPU.

Small convolutions gain nothing from being stacked over learners on a CPU, so each learner's
minibatch is one forward and one backward pass, unpadded, whose gradients are added to a flat
buffer where they belong.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from m2fdp.models.registry import Model
from m2fdp.simulation.backends.base import clip_factor
from m2fdp.simulation.backends.bookkeeping import BookKeeper, build_book_keeper
from m2fdp.simulation.records import Minibatches


@dataclass(frozen=True)
class SequentialBackend:
    """Works on a copy of the module, whose parameters it points at the learner's."""

    model: Model
    group: int = 1
    book_keeper: BookKeeper | None = field(init=False)

    def __post_init__(self) -> None:
        module = copy.deepcopy(self.model.module)
        for layer in module.modules():
            if hasattr(layer, "inplace"):
                layer.inplace = False
        object.__setattr__(self, "model", replace(self.model, module=module))
        object.__setattr__(self, "book_keeper", build_book_keeper(module))

    def add_gradients(
        self,
        into: Tensor,
        alpha: float,
        models: Tensor,
        batches: Minibatches,
        clipping_norm: float | None,
        by_class: bool = False,
    ) -> None:
        if by_class:
            raise ValueError("gradients of models that are not linear have no part of a class")
        parameters = dict(self.model.module.named_parameters())
        sizes = [parameter.numel() for parameter in parameters.values()]
        for learner in batches.counts.nonzero()[0].tolist():
            features, labels, weights = batches.records(learner)
            features = _channels_last(features)
            for parameter, values in zip(
                parameters.values(), models[learner].split(sizes), strict=True
            ):
                parameter.data = _channels_last(values.view(parameter.shape))
            if clipping_norm is None:
                losses = self.model.loss(self.model.module(features), labels)
                sums = torch.autograd.grad((losses * weights).sum(), list(parameters.values()))
                gradients = dict(zip(parameters, sums, strict=True))
            else:
                gradients = self._clipped_sums(features, labels, weights, clipping_norm)
            targets = into[learner].split(sizes)
            for name, target in zip(parameters, targets, strict=True):
                target.view(parameters[name].shape).add_(gradients[name], alpha=alpha)

    def _clipped_sums(
        self, features: Tensor, labels: Tensor, weights: Tensor, clipping_norm: float
    ) -> dict[str, Tensor]:
        if self.book_keeper is not None:
            records = self.book_keeper.record_gradients(self.model, features, labels)
            if records is not None:
                return records.weighted_sums(
                    weights * clip_factor(records.squared_norms().sqrt(), clipping_norm)
                )

        def loss(parameters: dict[str, Tensor], feature: Tensor, label: Tensor) -> Tensor:
            scores = torch.func.functional_call(self.model.module, parameters, (feature[None],))
            return self.model.loss(scores, label[None]).sum()

        parameters = {name: p.detach() for name, p in self.model.module.named_parameters()}
        gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(
            parameters, features, labels
        )
        squared = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0)
        factors = weights * clip_factor(squared.sqrt(), clipping_norm)
        return {name: torch.tensordot(factors, g, 1) for name, g in gradients.items()}


def _channels_last(values: Tensor) -> Tensor:
    """Images and filters in the layout that small convolutions on a CPU are fastest with.

    One channel has both layouts at once, and the convolution would take it for the other.
    """
    if values.dim() != 4:
        return values
    n, channels, height, width = values.shape
    values = values.contiguous(memory_format=torch.channels_last)
    strides = (channels * height * width, 1, width * channels, channels)
    return values.as_strided((n, channels, height, width), strides)
