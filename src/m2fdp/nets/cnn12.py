"""cnn12 (J Sec. VI-A): three times conv-relu-pool, flatten, linear; the softmax is in the loss."""

from collections.abc import Sequence

from torch import nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.models.checks import Shape, check_pixels
from m2fdp.core.models.registry import Model

# The widths that give M = 7840 parameters at ten classes (J Sec. VI-A), by image channels.
_CHANNELS = {1: (16, 18, 20), 3: (5, 17, 22)}


def cnn12(config: ModelConfig, shape: Shape, n_classes: int) -> Model:
    """The whole of it."""
    parts = cnn12_modules(config.channels, shape, n_classes)
    return Model("cnn12", nn.Sequential(*(layer for part in parts for layer in part)))


def cnn12_modules(
    channels: Sequence[int] | None, shape: Shape, n_classes: int
) -> list[nn.Sequential]:
    """Its twelve layers in four: three of a convolution each, and the last that decides.

    Args:
        channels: widths of the three convolutions; null = those of M = 7840 parameters.

    Raises:
        InputError: images too small for three poolings.
    """
    inputs, height, width = shape
    check_pixels("cnn12", shape, 8, "pools three times, so images need")
    modules, before = [], inputs
    for after in cnn12_channels(channels, shape):
        layers = nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        modules.append(nn.Sequential(*layers))
        before = after
    features = before * (height // 8) * (width // 8)
    return [*modules, nn.Sequential(nn.Flatten(), nn.Linear(features, n_classes))]


def cnn12_channels(channels: Sequence[int] | None, shape: Shape) -> tuple[int, ...]:
    """Of the three convolutions, as `cnn12_modules` has them."""
    return tuple(channels or _CHANNELS.get(shape[0], _CHANNELS[3]))
