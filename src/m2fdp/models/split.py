"""Split models: a chain of modules that a client and a server may share, cut after any of them.

D's ResNets of bottlenecks (He et al. 2016) at any depth and width (D Tables 8 to 10). Tier m of D
Sec. 3.2: the client has modules md1 … md_m and an auxiliary head, the server all that follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from m2fdp.errors import InputError
from m2fdp.models.checks import Loss, Shape
from m2fdp.models.losses import cross_entropy
from m2fdp.streams import torch_seed

# md2 … md7 have b bottlenecks of three convolutions each, and the first and the last layer are one.
_LAYERS_PER_BLOCK = 18
_EXPANSION = 4
# Two convolutions have stride 2: smaller images have nothing left to halve.
_LEAST_PIXELS = 4


@dataclass(frozen=True, eq=False)
class SplitModel:
    """Modules in a chain, and the heads that train each beginning of it by a loss of its own.

    Attributes:
        name: such as resnet56.
        modules: md1 … md_n; the last maps to scores (B, classes).
        heads: of tiers 1 … n − 1, from what module m gives to scores (B, classes).
        loss: scores (B, C) and labels (B,) to a loss per record (B,).
        shape: (C, H, W) of the images.
    """

    name: str
    modules: nn.ModuleList
    heads: nn.ModuleList
    loss: Loss
    shape: Shape

    @property
    def n_tiers(self) -> int:
        """The places where the chain can be cut."""
        return len(self.heads)

    def whole(self, features: Tensor) -> Tensor:
        """Scores (B, classes) of images (B, C, H, W)."""
        for module in self.modules:
            features = module(features)
        return features

    def scores_at(self, tier: int, features: Tensor) -> Tensor:
        """The server's and the client's scores, side by side.

        No gradient of the server's scores flows back through what the client sends, as in
        training with local losses (D eqs 3 and 4).

        Args:
            tier: m = 1 … n_tiers.
            features: images (B, C, H, W).

        Returns:
            (B, 2 classes), the server's first.
        """
        if not 1 <= tier <= self.n_tiers:
            raise ValueError(f"a tier of 1 to {self.n_tiers}, not {tier}")
        for module in self.modules[:tier]:
            features = module(features)
        sent = features.detach()
        for module in self.modules[tier:]:
            sent = module(sent)
        return torch.cat((sent, self.heads[tier - 1](features)), dim=1)

    def tier_loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """What a split step descends, by record (B,): the server's loss and the client's.

        Args:
            scores: of `scores_at`, (B, 2 classes).
            labels: (B,).
        """
        server, client = scores.chunk(2, dim=1)
        return self.loss(server, labels) + self.loss(client, labels)


def blocks_of_depth(depth: int) -> int:
    """b, the bottlenecks of each of md2 … md7 of a ResNet of that many layers.

    Raises:
        ValueError: no ResNet of this scheme has so many layers.
    """
    blocks, rest = divmod(depth - 2, _LAYERS_PER_BLOCK)
    if rest or blocks < 1:
        raise ValueError(f"a depth of 18 b + 2 layers (20, 38, 56, …), not {depth}")
    return blocks


def split_resnet(
    depth: int, width: int, shape: Shape, n_classes: int, seed: int | None = None
) -> SplitModel:
    """D's ResNet in eight modules, with the heads of its seven tiers.

    Convolutions have no bias; strides sit in the 3 x 3 ones. D's Tables 8 and 9 print stride 1
    for the first of md4 and md6 beside a projection of stride 2, and a pooling in md1 that the
    printed sizes have no room for: stride 2, and no pooling.

    Args:
        depth: 18 b + 2 layers, such as 56 and 110.
        width: channels of md1; D's is 16.
        shape: (C, H, W) of the images.
        seed: of the initial weights (He et al. 2015, fan out); null = shapes only, without
            numbers, for whoever counts.

    Raises:
        InputError: images too small for the two strides.
        ValueError: no such depth.
    """
    blocks = blocks_of_depth(depth)
    channels, height, pixels = shape
    if min(height, pixels) < _LEAST_PIXELS:
        raise InputError(
            "model.name",
            f"resnet{depth}",
            f"halves images twice, so they need at least {_LEAST_PIXELS} x {_LEAST_PIXELS} "
            f"pixels; these have {height} x {pixels}",
        )
    if seed is None:
        with torch.device("meta"):
            modules = _modules(blocks, width, channels, n_classes)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed, "initialisation"))
            modules = _modules(blocks, width, channels, n_classes)
    return SplitModel(f"resnet{depth}", modules[0], modules[1], cross_entropy, shape)


def _modules(
    blocks: int, width: int, channels: int, n_classes: int
) -> tuple[nn.ModuleList, nn.ModuleList]:
    modules: list[nn.Module] = [
        nn.Sequential(_convolution(channels, width, 3), nn.BatchNorm2d(width), nn.ReLU())
    ]
    outputs = [width]
    for stage in range(3):
        planes = width * 2**stage
        for part in range(2):
            stride = 2 if stage and not part else 1
            first = _Bottleneck(outputs[-1], planes, stride)
            outputs.append(planes * _EXPANSION)
            others = [_Bottleneck(outputs[-1], planes, 1) for _ in range(blocks - 1)]
            modules.append(nn.Sequential(first, *others))
    modules.append(_head(outputs[-1], n_classes))
    return nn.ModuleList(modules), nn.ModuleList(_head(size, n_classes) for size in outputs)


class _Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1, each normalised, beside the identity or a projection."""

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = planes * _EXPANSION
        self.body = nn.Sequential(
            _convolution(inputs, planes, 1),
            nn.BatchNorm2d(planes),
            nn.ReLU(),
            _convolution(planes, planes, 3, stride),
            nn.BatchNorm2d(planes),
            nn.ReLU(),
            _convolution(planes, outputs, 1),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        )

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.relu(self.body(features) + self.shortcut(features))


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def _head(inputs: int, n_classes: int) -> nn.Module:
    """The last module, and every auxiliary head."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, n_classes))
