"""Small networks of the papers: H's dense layer, Zhu et al.'s LeNet, G's cnn2 and J's cnn12."""

from collections.abc import Sequence
from math import prod

from torch import nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.models.checks import Shape, check_pixels
from m2fdp.core.models.registry import Model

_HIDDEN = 100  # units of `dense`
# The widths that give cnn12 M = 7840 parameters at ten classes (J Sec. VI-A), by image channels.
_CHANNELS = {1: (16, 18, 20), 3: (5, 17, 22)}


def dense(config: ModelConfig, shape: Shape, n_classes: int) -> Model:
    """One hidden layer, as H has for EMNIST (H does not say how wide)."""
    first, last = nn.Linear(prod(shape), _HIDDEN), nn.Linear(_HIDDEN, n_classes)
    return Model("dense", nn.Sequential(nn.Flatten(), first, nn.ReLU(), last))


def lenet(config: ModelConfig, shape: Shape, n_classes: int) -> Model:
    """Three convolutions with sigmoids, and a linear layer: the network that was reconstructed from
    (Zhu et al. 2019, with its wide first weights): M = 13,426 for 28 x 28 x 1 and ten classes."""
    inputs, *sides = shape
    layers: list[nn.Module] = []
    for before, stride in ((inputs, 2), (12, 2), (12, 1)):
        layers += [nn.Conv2d(before, 12, 5, stride, padding=2), nn.Sigmoid()]
    places = prod(-(-side // 4) for side in sides)  # sides are halved twice, rounded up
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(12 * places, n_classes))
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return Model("lenet", module)


def cnn2(config: ModelConfig, shape: Shape, n_classes: int) -> Model:
    """Twice conv-pool-relu, then a hidden layer (G Sec. 5, by the code of its reference [14]).
    M = 21,840 for grey images of MNIST's size and ten classes."""
    need = "halves images twice after convolutions of 5 x 5, so they need"
    check_pixels("cnn2", shape, 16, need)
    inputs, *sides = shape
    layers: list[nn.Module] = []
    for before, after in ((inputs, 10), (10, 20)):
        layers += [nn.Conv2d(before, after, 5), nn.MaxPool2d(2), nn.ReLU()]
    places = prod(((side - 4) // 2 - 4) // 2 for side in sides)
    hidden, last = nn.Linear(20 * places, 50), nn.Linear(50, n_classes)
    return Model("cnn2", nn.Sequential(*layers, nn.Flatten(), hidden, nn.ReLU(), last))


def cnn12(config: ModelConfig, shape: Shape, n_classes: int) -> Model:
    """Three times conv-relu-pool, flatten, linear (J Sec. VI-A); the softmax is in the loss."""
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
    before, height, width = shape
    check_pixels("cnn12", shape, 8, "pools three times, so images need")
    modules = []
    for after in cnn12_channels(channels, shape):
        layers = nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        modules.append(nn.Sequential(*layers))
        before = after
    features = before * (height // 8) * (width // 8)
    return [*modules, nn.Sequential(nn.Flatten(), nn.Linear(features, n_classes))]


def cnn12_channels(channels: Sequence[int] | None, shape: Shape) -> tuple[int, ...]:
    """Of the three convolutions, as `cnn12_modules` has them."""
    return tuple(channels or _CHANNELS.get(shape[0], _CHANNELS[3]))
