"""One learner after the other, for any model on a CPU, where stacked convolutions gain nothing.

Each learner's minibatch is one forward and one backward pass, unpadded. The backward pass stops at
the outputs of the layers that have parameters (book-keeping). A record's gradient in a linear layer
is the outer product of its error and its input, so the norm needs no gradient. In a convolution it
is a small matrix. One more product a layer gives the sum of the clipped gradients (Bu et al., 2023,
"Differentially Private Optimization on Large Model at Small Cost").
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from m2fdp.core.engine.clipping import clip_factors, squared_norms_of_products
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.rules import ClipFactor, flat_clip
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
        keeper = None if self.model.is_own else self.book_keeper
        if keeper is not None and not all(type(of) is nn.Linear for of in keeper.names):
            keeper = None  # products of errors and inputs gain nothing
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
            elif keeper is not None:
                records = keeper.record_gradients(self.model, features, labels)
            if records is not None:
                targets = unflattened(parameters, target[learner])
                records.add_weighted_sums(targets, alpha, weights)
                continue
            losses = self.model.loss(self.model.module(features), labels)
            sums = torch.autograd.grad((losses * weights).sum(), list(parameters.values()))
            # One call for all parameters is faster, even with the copy.
            target[learner].add_(torch.cat([total.flatten() for total in sums]), alpha=alpha)

    def _record_gradients(
        self, features: Tensor, labels: Tensor
    ) -> RecordGradients | StackedGradients:
        parameters = {name: p.detach() for name, p in self.model.module.named_parameters()}
        if self.model.is_own and self._output_shapes is None:
            self._output_shapes = self._faithful_shapes(features)
            self.book_keeper = self.book_keeper if self._output_shapes else None
        records = None
        if self.book_keeper is not None:
            keeper, shapes = self.book_keeper, self._output_shapes
            if shapes is not None:
                return keeper.one_by_one(self.model, parameters, features, labels, shapes)
            records = keeper.record_gradients(self.model, features, labels)
        return records or self._stacked_gradients(parameters, features, labels)

    def _faithful_shapes(self, features: Tensor) -> list[tuple[int, ...]] | None:
        """The shapes of the layers' outputs, if book-keeping is exact for a user's own module on
        drawn records at drawn parameters."""
        module, keeper = self.model.module, self.book_keeper
        shapes = None if keeper is None else keeper.output_shapes(module, features[:1])
        if keeper is None or shapes is None:
            return None
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(features)

        records = drawn(2, *features.shape[1:])
        labels = torch.zeros(2, dtype=torch.int64, device=features.device)
        parameters = {name: 0.1 * drawn(*p.shape) for name, p in module.named_parameters()}
        sums = []
        for gradients in (
            keeper.one_by_one(self.model, parameters, records, labels, shapes),
            self._stacked_gradients(parameters, records, labels),
        ):
            sums.append({name: torch.zeros_like(p) for name, p in parameters.items()})
            gradients.add_weighted_sums(sums[-1], 1.0, records.new_ones(2))
        by_keeper, true = sums
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

    gradients: Mapping[str, Tensor]

    def squared_norms(self) -> Tensor:
        """(b,), over all parameters."""
        return torch.stack([g.flatten(1).square().sum(1) for g in self.gradients.values()]).sum(0)

    def without(self, lost: Tensor) -> StackedGradients:
        """The same, zero for some records, bool (b,)."""
        return StackedGradients({name: _zeroed(g, lost) for name, g in self.gradients.items()})

    def add_weighted_sums(
        self, targets: Mapping[str, Tensor], alpha: float, weights: Tensor
    ) -> None:
        """Add alpha times the sum over the records, each times its weight (b,), by parameter."""
        for name, gradients in self.gradients.items():
            targets[name].add_(torch.tensordot(weights, gradients, 1), alpha=alpha)


@dataclass(frozen=True, eq=False)
class LayerGradients:
    """The gradients of b records in a layer. `errors` (b, C) are the loss's derivatives in its
    output. `factor` is its inputs (b, D), if a record's gradient is the outer product of both; else
    the gradients (b, C, D)."""

    weight: str
    bias: str | None
    errors: Tensor
    factor: Tensor

    def squared_norms(self) -> Tensor:
        if self.factor.dim() == 2:
            return squared_norms_of_products(self.errors, self.factor)
        return self.factor.square().sum((1, 2))


@dataclass(frozen=True, eq=False)
class RecordGradients:
    """The gradients of b records by layer; see `StackedGradients`."""

    layers: tuple[LayerGradients, ...]

    def squared_norms(self) -> Tensor:
        total = torch.zeros(())
        for layer in self.layers:
            total = total + layer.squared_norms()
            if layer.bias is not None:
                total = total + layer.errors.square().sum(1)
        return total

    def without(self, lost: Tensor) -> RecordGradients:
        zeroed = (
            replace(of, errors=_zeroed(of.errors, lost), factor=_zeroed(of.factor, lost))
            for of in self.layers
        )
        return RecordGradients(tuple(zeroed))

    def add_weighted_sums(
        self, targets: Mapping[str, Tensor], alpha: float, weights: Tensor
    ) -> None:
        for layer in self.layers:
            target = targets[layer.weight].flatten(1)
            if layer.factor.dim() == 2:
                target.addmm_((layer.errors * weights[:, None]).T, layer.factor, alpha=alpha)
            else:
                target.view(-1).addmv_(layer.factor.flatten(1).T, weights, alpha=alpha)
            if layer.bias is not None:
                targets[layer.bias].addmv_(layer.errors.T, weights, alpha=alpha)


@dataclass(frozen=True, eq=False)
class BookKeeper:
    """Hooks on the layers of one module, by the names of the layers' weights."""

    names: Mapping[nn.Module, str]

    def record_gradients(
        self, model: Model, features: Tensor, labels: Tensor
    ) -> RecordGradients | None:
        """The record gradients at the module's parameters; None if a layer is not called exactly
        once, or its output is changed in place."""
        scores, called = self._called(model.module, features)
        if called is None or any(output._version for _, output in called):
            return None
        loss = model.loss(scores, labels).sum()
        errors = torch.autograd.grad(loss, [output for _, output in called])
        return self._gradients([inputs for inputs, _ in called], errors)

    def output_shapes(self, module: nn.Module, record: Tensor) -> list[tuple[int, ...]] | None:
        """The shape of each layer's output for one record (1, C, H, W); None if a layer is not
        called exactly once with one record."""
        with torch.no_grad():
            _, called = self._called(module, record)
        if called is None:
            return None
        for layer, (_, output) in zip(self.names, called, strict=True):
            if output.dim() < (4 if isinstance(layer, nn.Conv2d) else 2) or len(output) != 1:
                return None
        return [tuple(output.shape) for _, output in called]

    def _called(
        self, module: nn.Module, features: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]] | None]:
        """Scores, and each layer's input and output; None if one is not called exactly once."""
        calls: list[tuple[nn.Module, Tensor, Tensor]] = []

        def listen(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            calls.append((layer, inputs[0], output))

        with self._listening(listen):
            scores = module(features)
        heard = {layer: (inputs, output) for layer, inputs, output in calls}
        once = len(calls) == len(heard) == len(self.names)
        return scores, [heard[layer] for layer in self.names] if once else None

    def one_by_one(
        self,
        model: Model,
        parameters: Mapping[str, Tensor],
        features: Tensor,
        labels: Tensor,
        shapes: list[tuple[int, ...]],
    ) -> RecordGradients:
        """The record gradients at some parameters, if each record passes the module alone
        (`torch.func.vmap`); shapes are those of `output_shapes`."""

        def loss(
            shifts: list[Tensor], feature: Tensor, label: Tensor
        ) -> tuple[Tensor, list[Tensor]]:
            shift_of = dict(zip(self.names, shifts, strict=True))
            inputs = {}

            def listen(layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
                inputs[layer] = arguments[0][0]
                return output + shift_of[layer]

            with self._listening(listen):
                scores = torch.func.functional_call(model.module, dict(parameters), feature[None])
            return model.loss(scores, label[None]).sum(), [inputs[layer] for layer in self.names]

        # An output's error is the derivative in what is added to it.
        nothing = [features.new_zeros(shape) for shape in shapes]
        by_record = torch.func.vmap(torch.func.grad(loss, has_aux=True), in_dims=(None, 0, 0))
        errors, inputs = by_record(nothing, features, labels)
        return self._gradients(inputs, [error.detach()[:, 0] for error in errors])

    def _gradients(self, inputs: Iterable[Tensor], errors: Iterable[Tensor]) -> RecordGradients:
        """The record gradients of inputs and errors of all layers."""
        layers = []
        for (layer, weight), of, error in zip(self.names.items(), inputs, errors, strict=True):
            bias = weight.removesuffix("weight") + "bias" if layer.bias is not None else None
            layers.append(LayerGradients(weight, bias, *_factors(layer, of.detach(), error)))
        return RecordGradients(tuple(layers))

    @contextmanager
    def _listening(self, listen: Callable[..., Tensor | None]) -> Iterator[None]:
        hooks = [layer.register_forward_hook(listen) for layer in self.names]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def build_book_keeper(module: nn.Module) -> BookKeeper | None:
    """A book-keeper; None if a parameter is shared, or not of a linear layer or convolution."""
    names, owned = {}, []
    for name, layer in module.named_modules():
        own = [id(parameter) for parameter in layer.parameters(recurse=False)]
        if own and not _is_plain(layer):
            return None
        if own:
            names[layer] = f"{name}.weight" if name else "weight"
        owned += own
    return BookKeeper(names) if len(owned) == len(set(owned)) else None


def channels_last(values: Tensor) -> Tensor:
    """Images and filters (n, C, H, W) with the channels of a place side by side, which small
    convolutions on a CPU are fastest with; others as they are.

    One channel has both layouts at once, and the convolution would take it for the other.
    """
    if values.dim() != 4:
        return values
    n, channels, height, width = values.shape
    values = values.contiguous(memory_format=torch.channels_last)
    strides = (channels * height * width, 1, width * channels, channels)
    return values.as_strided((n, channels, height, width), strides)


def _is_plain(layer: nn.Module) -> bool:
    if type(layer) is not nn.Conv2d:
        return type(layer) is nn.Linear
    return (
        layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    )


def _factors(layer: nn.Module, inputs: Tensor, errors: Tensor) -> tuple[Tensor, Tensor]:
    """The errors (b, C) and the factor of a layer's `LayerGradients`."""
    if isinstance(layer, nn.Conv2d) and not isinstance(layer.padding, str):
        patches = nn.functional.unfold(
            inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride
        )
        errors = errors.flatten(2)  # (b, C, places)
        return errors.sum(2), errors @ patches.mT
    if inputs.dim() == 2:
        return errors, inputs
    inputs, errors = inputs.flatten(1, -2), errors.flatten(1, -2)  # (b, places, D or C)
    return errors.sum(1), errors.mT @ inputs


def _zeroed(values: Tensor, lost: Tensor) -> Tensor:
    """The values (n, …) with zeros in the rows that are lost, bool (n,)."""
    return values.masked_fill(lost.view(-1, *[1] * (values.dim() - 1)), 0.0)
