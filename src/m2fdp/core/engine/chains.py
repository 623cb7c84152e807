"""Chains of layers, whose derivatives are taken by hand: one pass forward, one back, no graph.

Each layer treats every record alone. So one pass back gives the derivative of each record's loss in
each layer's output, whatever the other records are.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from m2fdp.core.models.registry import Model

_TORCH = torch.ops.aten
# What a layer keeps of its way forward for its way back; its inputs first, if it has parameters.
_Kept = tuple[Any, ...]


class _Way(NamedTuple):
    """How a kind of layer is passed, forward and back."""

    # Of the layer, its inputs, and its weight and bias: outputs, and what is kept.
    forward: Callable[[Any, Tensor, Sequence[Tensor]], tuple[Tensor, _Kept]]
    # Of the layer, derivatives in its outputs, and what is kept: derivatives in its inputs.
    back: Callable[[Any, Tensor, _Kept], Tensor]


def _linear(layer: Any, inputs: Tensor, own: Sequence[Tensor]) -> tuple[Tensor, _Kept]:
    return functional.linear(inputs, *own), (inputs, own[0])


def _convolution(layer: Any, inputs: Tensor, own: Sequence[Tensor]) -> tuple[Tensor, _Kept]:
    weight, bias = channels_last(own[0]), own[1] if len(own) > 1 else None
    how = layer.stride, layer.padding, layer.dilation
    return functional.conv2d(inputs, weight, bias, *how), (inputs, weight)


def _convolved_back(
    layer: Any, errors: Tensor, kept: _Kept, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor, ...]:
    """The derivatives in a convolution's inputs, weight and bias, those that are wanted."""
    how = [errors.shape[1]], layer.stride, layer.padding, layer.dilation, False, (0, 0), 1, wanted
    return _TORCH.convolution_backward(errors, *kept, *how)


def _pool(layer: Any, inputs: Tensor, own: Sequence[Tensor]) -> tuple[Tensor, _Kept]:
    outputs, places = _TORCH.max_pool2d_with_indices(inputs, *_pooling(layer))
    return outputs, (inputs, places)


def _pooling(layer: Any) -> tuple[Any, ...]:
    sizes = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    return (*((of, of) if isinstance(of, int) else of for of in sizes), layer.ceil_mode)


def _of_value(function: Callable[[Tensor], Tensor], back: Callable[..., Tensor]) -> _Way:
    """A function of each number, whose derivative follows from its value."""

    def forward(layer: Any, inputs: Tensor, own: Sequence[Tensor]) -> tuple[Tensor, _Kept]:
        outputs = function(inputs)
        return outputs, (outputs,)

    return _Way(forward, lambda layer, errors, kept: back(errors, *kept))


_WAYS: dict[type[nn.Module], _Way] = {
    nn.Linear: _Way(_linear, lambda layer, errors, kept: errors @ kept[1]),
    nn.Conv2d: _Way(
        _convolution,
        lambda layer, errors, kept: _convolved_back(layer, errors, kept, (True, False, False))[0],
    ),
    nn.Flatten: _Way(
        lambda layer, inputs, own: (inputs.flatten(1), (inputs.shape,)),
        lambda layer, errors, kept: channels_last(errors.reshape(*kept)),
    ),
    nn.MaxPool2d: _Way(
        _pool,
        lambda layer, errors, kept: _TORCH.max_pool2d_with_indices_backward(
            errors, kept[0], *_pooling(layer), kept[1]
        ),
    ),
    nn.ReLU: _of_value(torch.relu, lambda errors, out: _TORCH.threshold_backward(errors, out, 0)),
    nn.Sigmoid: _of_value(torch.sigmoid, _TORCH.sigmoid_backward),
    nn.Tanh: _of_value(torch.tanh, _TORCH.tanh_backward),
}


class Passed(NamedTuple):
    """A layer with parameters that b records have passed."""

    layer: Any
    places: slice  # of its weight, and its bias if it has one, among the module's parameters
    kept: _Kept  # inputs (b, …) first
    errors: Tensor  # (b, …), the derivatives in its outputs

    def add_sum(self, targets: Sequence[Tensor], alpha: float) -> None:
        """Add alpha times the sum of the records' gradients to weight and bias, in place. Targets
        may be the parameters themselves: nothing else is computed from them any more."""
        weight, *biases = targets[self.places]
        if isinstance(self.layer, nn.Linear):
            errors, inputs = self.errors.flatten(0, -2), self.kept[0].flatten(0, -2)
            weight.addmm_(errors.T, inputs, alpha=alpha)
            of_bias = errors.sum(0)
        else:
            wanted = False, True, bool(biases)
            _, of_weight, of_bias = _convolved_back(self.layer, self.errors, self.kept, wanted)
            weight.add_(of_weight, alpha=alpha)
        for bias in biases:
            bias.add_(of_bias, alpha=alpha)


@dataclass(frozen=True, eq=False)
class Chain:
    """The layers of a module in order, each with the places of its own among the parameters."""

    layers: tuple[tuple[Any, slice], ...]

    def passed(
        self, model: Model, parameters: Sequence[Tensor], batch: tuple[Tensor, Tensor, Tensor]
    ) -> Iterator[Passed]:
        """The layers with parameters, last to first; a layer's may be changed once it is given.

        Args:
            parameters: the module's, weights and biases in its order.
            batch: b records' features and labels, and weights (b,) that their losses are times.
        """
        (values, labels, weights), way_forward = batch, list[_Kept]()
        for layer, places in self.layers:
            values, kept = _WAYS[type(layer)].forward(layer, values, parameters[places])
            way_forward.append(kept)
        errors = model.score_gradients(values.mT, labels).mT * weights[:, None]
        left = len(parameters)
        for (layer, places), kept in zip(reversed(self.layers), reversed(way_forward), strict=True):
            passed = Passed(layer, places, kept, errors)
            left -= len(parameters[places])
            if left:  # nothing before the first parameters is asked for
                errors = _WAYS[type(layer)].back(layer, errors, kept)
            if parameters[places]:
                yield passed
            if not left:
                return


def build_chain(module: nn.Module) -> Chain | None:
    """The chain that a module is; None if it is none, or of layers that are not known here."""
    if type(module) is not nn.Sequential or any(map(_is_altered, module.modules())):
        return None
    layers, place = list[tuple[Any, slice]](), 0
    for layer in _flat(module):
        own = [name for name, _ in layer.named_parameters(recurse=False)]
        plain = type(layer) in _WAYS and own == ["weight", "bias"][: len(own)]
        if not plain or not _is_alone(layer):
            return None
        layers.append((layer, slice(place, place := place + len(own))))
        if isinstance(layer, nn.MaxPool2d) and isinstance(layers[-2:][0][0], nn.ReLU):
            # The same function with the same derivative, of fewer numbers.
            layers[-2:] = layers[-1], layers[-2]
    # A layer, or a parameter, that is there twice counts once among the parameters.
    return Chain(tuple(layers)) if 0 < place == len(list(module.parameters())) else None


def _flat(module: Any) -> Iterator[nn.Module]:
    for layer in module:
        yield from _flat(layer) if type(layer) is nn.Sequential else (layer,)


def _is_altered(module: nn.Module) -> bool:
    """Whether it may do something else than its type says."""
    forward = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return bool(forward or module._backward_hooks or module._backward_pre_hooks)


def _is_alone(layer: Any) -> bool:
    """Whether, of its kind, it treats each record alone and is passed by hand."""
    if isinstance(layer, nn.Conv2d):
        padded = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        return layer.groups == 1 and padded
    if isinstance(layer, nn.Flatten):
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return not getattr(layer, "return_indices", False)


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
