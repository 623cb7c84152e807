"""D's ResNets of bottlenecks (He et al. 2016) at any depth and width, in eight modules (D Tables
8 to 10)."""

from dataclasses import dataclass
from math import gcd
from typing import Literal

from torch import Tensor, nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.errors import InputError
from m2fdp.core.models.checks import Shape, check_pixels
from m2fdp.core.models.registry import Model

Norm = Literal["batch", "group"]

# md2 … md7 have b bottlenecks of three convolutions each, and the first and the last layer are one.
_LAYERS_PER_BLOCK = 18
_EXPANSION = 4
# Two convolutions have stride 2: smaller images have nothing left to halve.
_LEAST_PIXELS = 4
_MOST_GROUPS = 8


@dataclass(frozen=True)
class ResnetPlan:
    """What a ResNet of the scheme is.

    Attributes:
        depth: 18 b + 2 layers, such as 56 and 110.
        width: channels of md1; D's is 16.
        norm: batch, as D has it; or group, in which no record touches another.
        stem_stride: stride of md1's convolution; D's is 1.
    """

    depth: int
    width: int
    norm: Norm = "batch"
    stem_stride: int = 1

    @property
    def name(self) -> str:
        """Such as resnet56."""
        return f"resnet{self.depth}"

    @property
    def outputs(self) -> tuple[int, ...]:
        """Channels after md1 … md7."""
        wide = [self.width * 2**stage * _EXPANSION for stage in range(3) for _ in range(2)]
        return (self.width, *wide)

    def last_pixels(self, shape: Shape) -> int:
        """Places of the maps that md8 averages over, for images (C, H, W)."""
        height, width = (-(-pixels // (4 * self.stem_stride)) for pixels in shape[1:])
        return height * width


def resnet_plan(config: ModelConfig) -> ResnetPlan:
    """The configured ResNet."""
    return ResnetPlan(config.depth, config.width, config.norm, config.stem_stride)


def resnet(config: ModelConfig, shape: Shape, n_classes: int) -> Model:
    """The whole of it, where gradients are taken record by record."""
    plan = resnet_plan(config)
    if plan.norm == "batch":
        raise InputError(
            "model.norm",
            "batch",
            "mixes the records of a batch, and keeps state that no step covers: it is for "
            "algorithms that train in tiers without privacy; use group",
        )
    return Model(plan.name, nn.Sequential(*resnet_modules(plan, shape, n_classes)))


def blocks_of_depth(depth: int) -> int:
    """b, the bottlenecks of each of md2 … md7 of a ResNet of that many layers.

    Raises:
        ValueError: no ResNet of this scheme has so many layers.
    """
    blocks, rest = divmod(depth - 2, _LAYERS_PER_BLOCK)
    if rest or blocks < 1:
        raise ValueError(f"a depth of 18 b + 2 layers (20, 38, 56, …), not {depth}")
    return blocks


def resnet_modules(plan: ResnetPlan, shape: Shape, n_classes: int) -> list[nn.Sequential]:
    """md1 … md8.

    Convolutions have no bias; strides sit in the 3 x 3 ones. D's Tables 8 and 9 print stride 1
    for the first of md4 and md6 beside a projection of stride 2, and a pooling in md1 that the
    printed sizes have no room for: stride 2, and no pooling.

    Raises:
        InputError: images too small for the strides.
        ValueError: no such depth.
    """
    blocks = blocks_of_depth(plan.depth)
    halvings = "three times" if plan.stem_stride > 1 else "twice"
    fewest = _LEAST_PIXELS * plan.stem_stride
    check_pixels(plan.name, shape, fewest, f"halves images {halvings}, so they need")
    stem = _convolution(shape[0], plan.width, 3, plan.stem_stride)
    modules = [nn.Sequential(stem, _norm(plan.norm, plan.width), nn.ReLU())]
    before = plan.width
    for stage in range(3):
        planes = plan.width * 2**stage
        for part in range(2):
            stride = 2 if stage and not part else 1
            first = _Bottleneck(before, planes, stride, plan.norm)
            before = planes * _EXPANSION
            others = [_Bottleneck(before, planes, 1, plan.norm) for _ in range(blocks - 1)]
            modules.append(nn.Sequential(first, *others))
    return [*modules, averaging_head(before, n_classes)]


def averaging_head(inputs: int, n_classes: int) -> nn.Sequential:
    """md8, and every auxiliary head: the mean over all places, and a linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, n_classes))


def small_network(plan: ResnetPlan, n_classes: int) -> nn.Sequential:
    """What FedGKT's clients have behind md1, with which it is a ResNet of eight layers (He et al.
    2020): two bottlenecks of md1's width, and a head."""
    wide = plan.width * _EXPANSION
    bottlenecks = [_Bottleneck(before, plan.width, 1, plan.norm) for before in (plan.width, wide)]
    return nn.Sequential(*bottlenecks, averaging_head(wide, n_classes))


class _Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1, each normalised, beside the identity or a projection."""

    def __init__(self, inputs: int, planes: int, stride: int, norm: Norm) -> None:
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


def _norm(norm: Norm, channels: int) -> nn.Module:
    """Groups have two channels at least where they can, as maps may be a single place."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(max(gcd(channels, 2 * _MOST_GROUPS) // 2, 1), channels)


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
