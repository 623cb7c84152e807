"""D's ResNets of bottlenecks (He et al. 2016) at any depth and width, in eight modules (D Tables
8 to 10). The block `model` says their depth, width, norm, and the stride of md1."""

from math import gcd

from torch import Tensor, nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.errors import InputError
from m2fdp.core.models.checks import Shape, check_pixels
from m2fdp.core.models.registry import Model

# md2 … md7 have b bottlenecks of three convolutions each, and the first and the last layer are one.
_LAYERS_PER_BLOCK = 18
_EXPANSION = 4
# Two convolutions have stride 2: smaller images have nothing left to halve.
_LEAST_PIXELS = 4
_MOST_GROUPS = 8


def resnet_name(config: ModelConfig) -> str:
    """Such as resnet56."""
    return f"resnet{config.depth}"


def channels_after(config: ModelConfig, module: int) -> int:
    """Of the maps that one of md1 … md7 gives."""
    return config.width * (2 ** (module // 2 - 1) * _EXPANSION if module > 1 else 1)


def last_pixels(config: ModelConfig, shape: Shape) -> int:
    """Places of the maps that md8 averages over, for images (C, H, W)."""
    height, width = (-(-pixels // (4 * config.stem_stride)) for pixels in shape[1:])
    return height * width


def resnet(config: ModelConfig, shape: Shape, n_classes: int) -> Model:
    """The whole of it, where gradients are taken record by record."""
    if config.norm == "batch":
        raise InputError(
            "model.norm",
            "batch",
            "mixes the records of a batch, and keeps state that no step covers: it is for "
            "algorithms that train in tiers without privacy; use group",
        )
    return Model(resnet_name(config), nn.Sequential(*resnet_modules(config, shape, n_classes)))


def resnet_modules(config: ModelConfig, shape: Shape, n_classes: int) -> list[nn.Sequential]:
    """md1 … md8.

    Convolutions have no bias; strides sit in the 3 x 3 ones. The first of md4
    and md6 has stride 2, as its projection has; D's Tables 8 and 9 print 1. Nothing is pooled in
    md1: the printed sizes have no room for the pooling that they print.

    Raises:
        InputError: images too small for the strides.
    """
    stem_stride, norm = config.stem_stride, config.norm
    halvings = "three times" if stem_stride > 1 else "twice"
    need = f"halves images {halvings}, so they need"
    check_pixels(resnet_name(config), shape, _LEAST_PIXELS * stem_stride, need)
    before = config.width
    stem = _convolution(shape[0], before, 3, stem_stride)
    modules = [nn.Sequential(stem, _norm(norm, before), nn.ReLU())]
    for number in range(2, 8):
        after = channels_after(config, number)
        blocks = []
        for block in range(config.depth // _LAYERS_PER_BLOCK):
            stride = 2 if block == 0 and number in (4, 6) else 1
            blocks.append(_Bottleneck(before, after // _EXPANSION, stride, norm))
            before = after
        modules.append(nn.Sequential(*blocks))
    return [*modules, averaging_head(before, n_classes)]


def averaging_head(inputs: int, n_classes: int) -> nn.Sequential:
    """md8, and every auxiliary head: the mean over all places, and a linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, n_classes))


def small_network(config: ModelConfig, n_classes: int) -> nn.Sequential:
    """What FedGKT's clients have behind md1, with which it is a ResNet of eight layers (He et al.
    2020): two bottlenecks of md1's width, and a head."""
    width, wide = config.width, config.width * _EXPANSION
    bottlenecks = [_Bottleneck(before, width, 1, config.norm) for before in (width, wide)]
    return nn.Sequential(*bottlenecks, averaging_head(wide, n_classes))


class _Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1, each normalised, beside the identity or a projection."""

    def __init__(self, inputs: int, planes: int, stride: int, norm: str) -> None:
        super().__init__()
        outputs = planes * _EXPANSION
        self.body = nn.Sequential(
            _convolution(inputs, planes, 1),
            _norm(norm, planes),
            nn.ReLU(),
            _convolution(planes, planes, 3, stride),
            _norm(norm, planes),
            nn.ReLU(),
            _convolution(planes, outputs, 1),
            _norm(norm, outputs),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(_convolution(inputs, outputs, 1, stride), _norm(norm, outputs))
        )

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.relu(self.body(features) + self.shortcut(features))


def _norm(norm: str, channels: int) -> nn.Module:
    """Groups have two channels at least where they can, as maps may be a single place."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(max(gcd(channels, 2 * _MOST_GROUPS) // 2, 1), channels)


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
