"""Dropout whose masks are the run's own: they follow from its seed, the step and the record.

A record comes with the step's key behind its pixels (`Minibatches.records`). A hash of the key, of
what the record shows, of the layer and of the place in the layer's input decides what is dropped.
So no record's mask depends on which others there are, and its gradient is a function of itself, the
model and the step alone. Nor do workers, or where a run was cut, change a mask. Records without a
key, as in evaluation, lose nothing.
"""

from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from m2fdp.core.models.checks import Shape

# Layers that drop whole maps.
_MAPS: tuple[type, ...] = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
# Of splitmix64 (Steele et al. 2014): shifts and multipliers, as int64 holds them.
_ROUNDS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


class KeyedDropout(nn.Module):
    """A layer that drops in place of torch's.

    Args:
        rate: the chance that something is dropped; what stays is multiplied by 1 / (1 - rate).
        maps: whether it drops maps (n, c, ...) as wholes.
        number: that of the layer in its model.
    """

    def __init__(self, rate: float, maps: bool, number: int) -> None:
        super().__init__()
        self.p, self.maps, self.number = rate, maps, number
        self.keys: Tensor | None = None  # int64 (B,), of the records that pass now
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.keys is None:
            return x
        n = len(self.keys)
        if n > 1 and len(x) != n:
            raise ValueError(f"dropout of {tuple(x.shape)}, where {n} records must come first")
        self.calls += 1
        shape = (*x.shape[:2], *[1] * (x.dim() - 2)) if self.maps else x.shape
        places = torch.arange(prod(shape) // n, device=x.device)
        layer = _mixed(places + (self.calls << 48) + (self.number << 40))
        bits = _mixed(self.keys[:, None] ^ layer) & (2**32 - 1)
        kept = (bits >= round(self.p * 2**32)).reshape(shape)
        return x * (kept * (1 / (1 - self.p) if self.p < 1 else 0.0)).to(x.dtype)


def with_keyed_dropout(module: nn.Module, shape: Shape) -> bool:
    """Put layers of this module in the place of torch's that drop; whether there is any."""
    made: dict[nn.Module, KeyedDropout] = {}
    for path, part in list(module.named_modules(remove_duplicate=False)):
        dropping: Any = part if type(part) in (nn.Dropout, *_MAPS) else None
        if path and dropping is not None and dropping.p > 0:
            layer = KeyedDropout(dropping.p, type(part) in _MAPS, len(made))
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, made.setdefault(part, layer))
    if made:
        module.register_forward_pre_hook(partial(_begin, shape))
        module.register_forward_hook(_end, always_call=True)
    return bool(made)


def _begin(shape: Shape, module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Part the records (B, C * H * W + 2) from the key behind them."""
    records, *others = given
    if records.dim() != 2:
        return None
    pixels, behind = records.split([prod(shape), 2], dim=1)
    low, high = behind.detach().long().unbind(1)
    keys = _mixed(_mixed(low + (high << 24)) ^ _shown(pixels.detach()))
    for layer in _layers(module):
        layer.keys, layer.calls = keys, 0
    return (pixels.unflatten(1, shape), *others)


def _end(module: nn.Module, given: tuple[Any, ...], scores: Any) -> None:
    for layer in _layers(module):
        layer.keys = None


def _layers(module: nn.Module) -> list[KeyedDropout]:
    return [part for part in module.modules() if isinstance(part, KeyedDropout)]


def _shown(pixels: Tensor) -> Tensor:
    """A number, int64 (B,), of what records (B, n) show, to 24 bits behind the point."""
    places = torch.arange(pixels.shape[1], device=pixels.device)
    levels = (pixels * 2.0**24).long()
    return _mixed((levels * (2 * _mixed(places) + 1)).sum(1))


def _mixed(numbers: Tensor) -> Tensor:
    """Numbers int64 (...) whose bits all depend on all bits of the given ones."""
    for shift, multiplier in _ROUNDS:
        numbers = (numbers ^ _shifted(numbers, shift)) * multiplier
    return numbers ^ _shifted(numbers, 31)


def _shifted(numbers: Tensor, n: int) -> Tensor:
    """Shifted right by n bits, as if without a sign."""
    return (numbers >> n) & ((1 << (64 - n)) - 1)
