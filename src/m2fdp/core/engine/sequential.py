"""One learner after the other, for any model on a CPU, where stacked convolutions gain nothing.

Each learner's minibatch is one pass forward and one back, unpadded. In a chain of known layers both
are taken by hand, and the gradient is added to the model where it stands: a learner's model stays
in the cache. A record's gradient in a linear layer is the outer product of its error and its input,
so the norm needs no gradient. In a convolution it is a small matrix. One more product a layer gives
the sum of the clipped gradients (Bu et al., 2023, "Differentially Private Optimization on Large
Model at Small Cost"). In other modules records to be clipped pass one at a time.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from m2fdp.core.engine.chains import Passed, build_chain, channels_last
from m2fdp.core.engine.clipping import clip_factors, squared_norms_of_products
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.rules import ClipFactor, flat_clip
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import Clipping

_Batch = tuple[Tensor, Tensor, Tensor]  # features, labels and weights of b records


class SequentialBackend:
    """A copy of the module: its chain; or, if it is none, parameters that point at a learner's."""

    group = 1

    def __init__(self, model: Model, clip_factor: ClipFactor = flat_clip) -> None:
        module = copy.deepcopy(model.module)
        layers: Iterable[Any] = module.modules()
        for layer in layers:
            if hasattr(layer, "inplace"):
                layer.inplace = False
        self.model, self.chain = replace(model, module=module), build_chain(module)
        self.clip_factor, self.parameters = clip_factor, dict(module.named_parameters())
        self.shapes = [parameter.shape for parameter in module.parameters()]

    def add_gradients(
        self, target: Tensor, alpha: float, models: Tensor, batches: Minibatches, clip: Clipping
    ) -> None:
        for learner in batches.counts.nonzero()[0].tolist():
            features, labels, weights = batches.records(learner)
            batch = channels_last(features), labels, weights
            values = self._views(models[learner])
            targets = values if target is models else self._views(target[learner])
            if clip.record_norm is None:
                self._add_sums(targets, alpha, values, batch)
                continue
            gradients = self._of_records(values, batch)
            norms = torch.stack([of.squared_norms() for of in gradients]).sum(0).sqrt()
            factors, lost = clip_factors(norms, clip.record_norm, self.clip_factor)
            for of in gradients:
                kept = of if lost is None else of.without(lost)
                kept.add_weighted_sums(targets, alpha, weights * factors)

    def _views(self, vector: Tensor) -> list[Tensor]:
        """The parameters, as views of a flat vector (M,)."""
        parts = vector.split([shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _add_sums(
        self, targets: Sequence[Tensor], alpha: float, values: Sequence[Tensor], batch: _Batch
    ) -> None:
        if self.chain is not None:
            for passed in self.chain.passed(self.model, values, batch):
                passed.add_sum(targets, alpha)
            return
        (features, labels, weights), parameters = batch, list(self.parameters.values())
        for parameter, value in zip(parameters, values, strict=True):
            parameter.data = channels_last(value)
        losses = self.model.loss(self.model.module(features), labels)
        sums = torch.autograd.grad((losses * weights).sum(), parameters)
        for into, total in zip(targets, sums, strict=True):
            into.add_(total, alpha=alpha)

    def _of_records(
        self, values: Sequence[Tensor], batch: _Batch
    ) -> Sequence["OfLayer | OfParameter"]:
        features, labels, weights = batch
        if self.chain is not None:
            alone = features, labels, torch.ones_like(weights)
            layers = self.chain.passed(self.model, values, alone)
            return [OfLayer(passed, *_factors(passed)) for passed in layers]

        def loss(parameters: dict[str, Tensor], feature: Tensor, label: Tensor) -> Tensor:
            scores = torch.func.functional_call(self.model.module, parameters, (feature[None],))
            return self.model.loss(scores, label[None]).sum()

        per_record = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        named = dict(zip(self.parameters, values, strict=True))
        gradients = per_record(named, features, labels)
        return [OfParameter(place, of) for place, of in enumerate(gradients.values())]


@dataclass(frozen=True, eq=False)
class OfParameter:
    """The gradients (b, …) of b records in one parameter."""

    place: int
    gradients: Tensor

    def squared_norms(self) -> Tensor:
        return self.gradients.flatten(1).square().sum(1)

    def without(self, lost: Tensor) -> "OfParameter":
        """The same, zero for some records, bool (b,)."""
        return replace(self, gradients=_zeroed(self.gradients, lost))

    def add_weighted_sums(self, targets: Sequence[Tensor], alpha: float, weights: Tensor) -> None:
        """Add alpha times the sum over the records, each times its weight (b,), in place."""
        targets[self.place].add_(torch.tensordot(weights, self.gradients, 1), alpha=alpha)


@dataclass(frozen=True, eq=False)
class OfLayer:
    """The gradients of b records in a layer. `errors` (b, C) are the loss's derivatives in its
    output. `factor` is its inputs (b, D), if a record's gradient is the outer product of both; else
    the gradients (b, C, D)."""

    passed: Passed
    errors: Tensor
    factor: Tensor

    def squared_norms(self) -> Tensor:
        if self.factor.dim() == 2:
            total = squared_norms_of_products(self.errors, self.factor)
        else:
            total = self.factor.square().sum((1, 2))
        return total if self.passed.layer.bias is None else total + self.errors.square().sum(1)

    def without(self, lost: Tensor) -> "OfLayer":
        return replace(self, errors=_zeroed(self.errors, lost), factor=_zeroed(self.factor, lost))

    def add_weighted_sums(self, targets: Sequence[Tensor], alpha: float, weights: Tensor) -> None:
        weight, *biases = targets[self.passed.places]
        if self.factor.dim() == 2:
            weight.addmm_((self.errors * weights[:, None]).T, self.factor, alpha=alpha)
        else:
            weight.view(-1).addmv_(self.factor.flatten(1).T, weights, alpha=alpha)
        for bias in biases:
            bias.addmv_(self.errors.T, weights, alpha=alpha)


def _factors(passed: Passed) -> tuple[Tensor, Tensor]:
    """The errors (b, C) and the factor of a layer's gradients."""
    layer, inputs, errors = passed.layer, passed.kept[0], passed.errors
    if isinstance(layer, nn.Conv2d):
        how: Any = (layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        patches = nn.functional.unfold(inputs, *how)
        errors = errors.flatten(2)  # (b, C, places)
        return errors.sum(2), errors @ patches.mT
    if inputs.dim() == 2:
        return errors, inputs
    inputs, errors = inputs.flatten(1, -2), errors.flatten(1, -2)  # (b, places, D or C)
    return errors.sum(1), errors.mT @ inputs


def _zeroed(values: Tensor, lost: Tensor) -> Tensor:
    """The values (n, …) with zeros in the rows that are lost, bool (n,)."""
    return values.masked_fill(lost.view(-1, *[1] * (values.dim() - 1)), 0.0)
