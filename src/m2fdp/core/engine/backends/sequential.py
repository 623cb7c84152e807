"""One learner after the other, for any model on a CPU, where stacked convolutions gain nothing.

Each learner's minibatch is one forward and one backward pass, unpadded, with gradients added to a
flat buffer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from m2fdp.core.engine.backends.bookkeeping import (
    BookKeeper,
    RecordGradients,
    build_book_keeper,
    zero_rows,
)
from m2fdp.core.engine.backends.layout import channels_last
from m2fdp.core.engine.clipping import ClipFactor, clip_factors, flat_clip
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.models.registry import Model, unflattened
from m2fdp.core.privacy.mechanisms import Clipping


class SequentialBackend:
    """A copy of the module, with parameters that point at the learner's."""

    group = 1

    def __init__(self, model: Model, clip_factor: ClipFactor = flat_clip) -> None:
        module = copy.deepcopy(model.module)
        layers: Iterable[Any] = module.modules()
        for layer in layers:
            if hasattr(layer, "inplace"):
                layer.inplace = False
        self.model = replace(model, module=module)
        self.clip_factor = clip_factor
        self.book_keeper = build_book_keeper(module)
        self._output_shapes: list[tuple[int, ...]] | None = None

    def add_gradients(
        self, target: Tensor, alpha: float, models: Tensor, batches: Minibatches, clip: Clipping
    ) -> None:
        parameters = dict(self.model.module.named_parameters())
        outer_products = self._outer_products
        for learner in batches.counts.nonzero()[0].tolist():
            features, labels, weights = batches.records(learner)
            features = channels_last(features)
            for name, values in unflattened(parameters, models[learner]).items():
                parameters[name].data = channels_last(values)
            records: RecordGradients | StackedGradients | None = None
            if clip.record_norm is not None:
                records = self._record_gradients(features, labels)
                norms = records.squared_norms().sqrt()
                factors, lost = clip_factors(norms, clip.record_norm, self.clip_factor)
                if lost is not None:
                    records = records.without(lost)
                weights = weights * factors
            elif outer_products is not None:
                records = outer_products.record_gradients(self.model, features, labels)
            if records is not None:
                targets = unflattened(parameters, target[learner])
                records.add_weighted_sums(targets, alpha, weights)
                continue
            losses = self.model.loss(self.model.module(features), labels)
            sums = torch.autograd.grad((losses * weights).sum(), list(parameters.values()))
            # One call for all parameters is faster, even with the copy.
            target[learner].add_(torch.cat([total.flatten() for total in sums]), alpha=alpha)

    @property
    def _outer_products(self) -> BookKeeper | None:
        """The book-keeper, if all layers are linear: it adds products of errors and inputs."""
        keeper = None if self.model.is_own else self.book_keeper
        linear = keeper is not None and all(isinstance(of, nn.Linear) for of in keeper.layers)
        return keeper if linear else None

    def _record_gradients(
        self, features: Tensor, labels: Tensor
    ) -> RecordGradients | StackedGradients:
        parameters = {name: p.detach() for name, p in self.model.module.named_parameters()}
        if self.model.is_own and self._output_shapes is None:
            self._output_shapes = self._faithful_shapes(features)
            self.book_keeper = self.book_keeper if self._output_shapes else None
        if self.book_keeper is not None:
            keeper, shapes = self.book_keeper, self._output_shapes
            if shapes is not None:
                return keeper.one_by_one(self.model, parameters, (features, labels), shapes)
            records = keeper.record_gradients(self.model, features, labels)
            if records is not None:
                return records
        return self._stacked_gradients(parameters, features, labels)

    def _faithful_shapes(self, features: Tensor) -> list[tuple[int, ...]] | None:
        """The shapes of the layers' outputs, if book-keeping is exact for a user's own module on
        drawn records at drawn parameters."""
        module, keeper = self.model.module, self.book_keeper
        shapes = None if keeper is None else keeper.output_shapes(module, features[:1])
        if keeper is None or shapes is None:
            return None
        generator = torch.Generator().manual_seed(0)

        def drawn(shape: torch.Size) -> Tensor:
            return torch.randn(shape, generator=generator).to(features)

        n_records = 2
        records = drawn(torch.Size([n_records, *features.shape[1:]]))
        labels = torch.zeros(n_records, dtype=torch.int64, device=features.device)
        parameters = {name: 0.1 * drawn(p.shape) for name, p in module.named_parameters()}
        zeros = {name: torch.zeros_like(p) for name, p in parameters.items()}
        by_keeper, true = zeros, {name: values.clone() for name, values in zeros.items()}
        weights = records.new_ones(n_records)
        gradients = keeper.one_by_one(self.model, parameters, (records, labels), shapes)
        gradients.add_weighted_sums(by_keeper, 1.0, weights)
        self._stacked_gradients(parameters, records, labels).add_weighted_sums(true, 1.0, weights)
        faithful = all(
            torch.allclose(by_keeper[key], values, rtol=1e-3, atol=1e-4 * float(values.abs().max()))
            for key, values in true.items()
        )
        return shapes if faithful else None

    def _stacked_gradients(
        self, parameters: dict[str, Tensor], features: Tensor, labels: Tensor
    ) -> StackedGradients:
        """The record gradients of any model; each record passes it alone."""

        def loss(parameters: dict[str, Tensor], feature: Tensor, label: Tensor) -> Tensor:
            scores = torch.func.functional_call(self.model.module, parameters, (feature[None],))
            return self.model.loss(scores, label[None]).sum()

        per_record = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        return StackedGradients(per_record(parameters, features, labels))


@dataclass(frozen=True, eq=False)
class StackedGradients:
    """The gradients of b records, (b, …) by parameter."""

    gradients: dict[str, Tensor]

    def squared_norms(self) -> Tensor:
        return torch.stack([g.flatten(1).square().sum(1) for g in self.gradients.values()]).sum(0)

    def without(self, lost: Tensor) -> StackedGradients:
        return StackedGradients(
            {name: zero_rows(gradients, lost) for name, gradients in self.gradients.items()}
        )

    def add_weighted_sums(self, targets: dict[str, Tensor], alpha: float, weights: Tensor) -> None:
        for name, gradients in self.gradients.items():
            targets[name].add_(torch.tensordot(weights, gradients, 1), alpha=alpha)
