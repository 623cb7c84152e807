"""Norms and weighted sums of record gradients from one backward pass (book-keeping).

The backward pass stops at the outputs of the layers that have parameters. A record's gradient
in a linear layer is the outer product of its error and its input, so the norm needs no gradient.
In a convolution it is a small matrix. One more product a layer gives the sum of the clipped
gradients (Bu et al., 2023, "Differentially Private Optimization on Large Model at Small Cost").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from m2fdp.core.engine.clipping import squared_norms_of_products
from m2fdp.core.models.registry import Model


@dataclass(frozen=True, eq=False)
class LayerGradients:
    """The loss's derivatives (b, C) in a layer's output. Its inputs (b, D), if a record's gradient
    is their outer product; else the gradients (b, C, D)."""

    errors: Tensor
    inputs: Tensor | None
    gradients: Tensor | None


@dataclass(frozen=True, eq=False)
class RecordGradients:
    """The gradients of b records by layer; `names` are those of its weight and its bias or None."""

    layers: tuple[LayerGradients, ...]
    names: tuple[tuple[str, str | None], ...]

    def squared_norms(self) -> Tensor:
        """(b,), over all parameters."""
        total = torch.zeros(())
        for layer, (_, bias) in zip(self.layers, self.names, strict=True):
            if layer.inputs is not None:
                total = total + squared_norms_of_products(layer.errors, layer.inputs)
            elif layer.gradients is not None:
                total = total + layer.gradients.square().sum((1, 2))
            if bias is not None:
                total = total + layer.errors.square().sum(1)
        return total

    def without(self, lost: Tensor) -> RecordGradients:
        """The same, zero for some records, bool (b,)."""

        def zeroed(values: Tensor | None) -> Tensor | None:
            return None if values is None else zero_rows(values, lost)

        layers = (
            LayerGradients(zero_rows(of.errors, lost), zeroed(of.inputs), zeroed(of.gradients))
            for of in self.layers
        )
        return RecordGradients(tuple(layers), self.names)

    def add_weighted_sums(self, targets: dict[str, Tensor], alpha: float, weights: Tensor) -> None:
        """Add alpha times the sum over the records, each times its weight (b,), by parameter."""
        for layer, (weight, bias) in zip(self.layers, self.names, strict=True):
            target = targets[weight].flatten(1)
            if layer.inputs is not None:
                target.addmm_((layer.errors * weights[:, None]).T, layer.inputs, alpha=alpha)
            elif layer.gradients is not None:
                target.view(-1).addmv_(layer.gradients.flatten(1).T, weights, alpha=alpha)
            if bias is not None:
                targets[bias].addmv_(layer.errors.T, weights, alpha=alpha)


@dataclass(frozen=True, eq=False)
class BookKeeper:
    """Hooks on the layers of one module, whose parameters have names as above."""

    layers: tuple[nn.Module, ...]
    names: tuple[tuple[str, str | None], ...]

    def record_gradients(
        self, model: Model, features: Tensor, labels: Tensor
    ) -> RecordGradients | None:
        """The record gradients at the module's parameters; None if a layer is not called exactly
        once, or its output is changed in place."""
        calls: list[tuple[nn.Module, Tensor, Tensor]] = []

        def listen(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            calls.append((layer, inputs[0], output))

        with self._listening(listen):
            scores = model.module(features)
        recorded = {layer: (inputs, output) for layer, inputs, output in calls}
        outputs = [output for _, output in recorded.values()]
        if not len(calls) == len(recorded) == len(self.layers) or any(o._version for o in outputs):
            return None
        losses = model.loss(scores, labels)
        errors = torch.autograd.grad(losses.sum(), [recorded[layer][1] for layer in self.layers])
        return RecordGradients(
            tuple(
                _layer_gradients(layer, recorded[layer][0].detach(), error)
                for layer, error in zip(self.layers, errors, strict=True)
            ),
            self.names,
        )

    def output_shapes(self, module: nn.Module, record: Tensor) -> list[tuple[int, ...]] | None:
        """The shape of each layer's output for one record (1, C, H, W); None if a layer is not
        called exactly once with one record."""
        shapes: dict[nn.Module, tuple[int, ...]] = {}
        calls = []

        def listen(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            n_dims = 4 if isinstance(layer, nn.Conv2d) else 2
            calls.append(output.dim() >= n_dims and len(output) == 1)
            shapes[layer] = tuple(output.shape)

        with self._listening(listen), torch.no_grad():
            module(record)
        called_once = all(calls) and len(calls) == len(shapes) == len(self.layers)
        return [shapes[layer] for layer in self.layers] if called_once else None

    def one_by_one(
        self,
        model: Model,
        parameters: dict[str, Tensor],
        records: tuple[Tensor, Tensor],
        shapes: list[tuple[int, ...]],
    ) -> RecordGradients:
        """The record gradients at some parameters, if each record, features and labels, passes the
        module alone (`torch.func.vmap`); shapes are those of `output_shapes`."""

        def loss(
            shifts: list[Tensor], feature: Tensor, label: Tensor
        ) -> tuple[Tensor, list[Tensor]]:
            shift_of = dict(zip(self.layers, shifts, strict=True))
            inputs = {}

            def listen(layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
                inputs[layer] = arguments[0][0]
                return output + shift_of[layer]

            with self._listening(listen):
                scores = torch.func.functional_call(model.module, parameters, (feature[None],))
            return model.loss(scores, label[None]).sum(), [inputs[layer] for layer in self.layers]

        # An output's error is the derivative in what is added to it.
        nothing = [records[0].new_zeros(shape) for shape in shapes]
        by_record = torch.func.vmap(torch.func.grad(loss, has_aux=True), in_dims=(None, 0, 0))
        errors, inputs = by_record(nothing, *records)
        return RecordGradients(
            tuple(
                _layer_gradients(layer, values.detach(), error.detach()[:, 0])
                for layer, values, error in zip(self.layers, inputs, errors, strict=True)
            ),
            self.names,
        )

    @contextmanager
    def _listening(self, listen: Callable[..., Tensor | None]) -> Iterator[None]:
        hooks = [layer.register_forward_hook(listen) for layer in self.layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def zero_rows(values: Tensor, lost: Tensor) -> Tensor:
    """The values (n, …) with zeros in the rows that are lost, bool (n,)."""
    return values.masked_fill(lost.view(-1, *[1] * (values.dim() - 1)), 0.0)


def build_book_keeper(module: nn.Module) -> BookKeeper | None:
    """A book-keeper; None if a parameter is shared, or not of a linear layer or convolution."""
    owners = {
        name: layer
        for name, layer in module.named_modules()
        if next(layer.parameters(recurse=False), None) is not None
    }
    owned = [id(p) for layer in owners.values() for p in layer.parameters(recurse=False)]
    if not all(map(_is_plain, owners.values())) or len(owned) != len(set(owned)):
        return None
    names = []
    for name, layer in owners.items():
        prefix = f"{name}." if name else ""
        names.append((f"{prefix}weight", f"{prefix}bias" if layer.bias is not None else None))
    return BookKeeper(tuple(owners.values()), tuple(names))


def _is_plain(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        return (
            layer.groups == 1
            and layer.padding_mode == "zeros"
            and not isinstance(layer.padding, str)
        )
    return type(layer) is nn.Linear


def _layer_gradients(layer: nn.Module, inputs: Tensor, errors: Tensor) -> LayerGradients:
    if isinstance(layer, nn.Conv2d) and not isinstance(layer.padding, str):
        patches = nn.functional.unfold(
            inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride
        )
        errors = errors.flatten(2)  # (b, C, places)
        return LayerGradients(errors.sum(2), None, errors @ patches.mT)
    if inputs.dim() == 2:
        return LayerGradients(errors, inputs, None)
    inputs, errors = inputs.flatten(1, -2), errors.flatten(1, -2)  # (b, places, D or C)
    return LayerGradients(errors.sum(1), None, errors.mT @ inputs)
