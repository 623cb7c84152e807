"""Labelled images that are nobody's records: random things, a class a generator of them.

Whoever must not look at records to choose a schedule looks at these. A class is a smooth outline, a
texture, and the tints of a thing and of what is behind it, all random. An image mixes its class
with as much of the same that is its own, shifted and scaled; grey things lie on black, coloured
ones before something coloured. How smooth, and how much is an image's own, was chosen so that noise
asks for steps as long as on MNIST, Fashion-MNIST and CIFAR-10.
"""

from pathlib import Path

import numpy as np

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset

# Nobody's privacy depends on it: what it draws is public.
_SEED = 20_123
# The deviation of what is an image's own; its class has the rest of the variance.
_OWN = 0.6
# Control points a side of smooth fields.
_OF_OUTLINE, _OF_TEXTURE = 4, 6
# As shares of a side.
_SHIFT, _LOG_SCALE = 0.08, 0.2
_TEST_SHARE = 6  # training records for each test record
_AT_A_TIME = 2_000
_CLASSES = 10


def make_synthetic(config: DatasetConfig, unpack_root: Path, seed: int = 0) -> Dataset:
    """As many training records as configured and a sixth as many test records, always the same.

    Labels are drawn evenly and independently.
    """
    height, width, channels = config.shape
    rng = np.random.default_rng(_SEED)
    of_classes = [
        rng.standard_normal((_CLASSES, *part), dtype=np.float32) for part in _parts(channels)
    ]
    n = config.records + max(1, config.records // _TEST_SHARE)
    labels = rng.integers(_CLASSES, size=n)
    images = np.empty((n, height, width, channels), dtype=np.uint8)
    for start in range(0, n, _AT_A_TIME):
        drawn = slice(start, min(start + _AT_A_TIME, n))
        mixed = [_mixed(part[labels[drawn]], rng) for part in of_classes]
        images[drawn] = _painted(mixed, (height, width), rng)
    return Dataset(config.name, images, labels.astype(np.int64), config.records, _CLASSES)


def _parts(channels: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of what a class consists of: outline, texture, two tints."""
    return (_OF_OUTLINE, _OF_OUTLINE, 1), (_OF_TEXTURE, _OF_TEXTURE, channels), (2, channels)


def _mixed(of_class: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What images have of their class with something of their own, of the same variance in all."""
    own = rng.standard_normal(of_class.shape, dtype=np.float32)
    return (1 - _OWN**2) ** 0.5 * of_class + _OWN * own


def _painted(
    parts: list[np.ndarray], size: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    """Things of some outlines, textures and tints: uint8 (n, H, W, C)."""
    outline, texture, tints = parts
    n, channels = len(outline), texture.shape[-1]
    places = [_coordinates(n, side, rng) for side in size]
    y, x = places
    field = _surface(outline, places) + 1 - 1.5 * (y[:, :, None] ** 2 + x[:, None] ** 2)[..., None]
    thing = np.clip(0.5 + 4 * field, 0, 1)
    inside = 0.6 + 0.2 * tints[:, None, None, 0] + 0.2 * _surface(texture, places)
    image = thing * inside
    if channels > 1:
        ground = rng.standard_normal(texture.shape, dtype=np.float32)
        behind = 0.4 + 0.2 * tints[:, None, None, 1] + 0.2 * _surface(ground, places)
        image += (1 - thing) * behind
    return np.round(255 * image.clip(0, 1)).astype(np.uint8)


def _coordinates(n: int, side: int, rng: np.random.Generator) -> np.ndarray:
    """Where each image's pixels lie along one side, (n, side): from -1 to 1, shifted and scaled."""
    centres, log_scales = rng.uniform(-1, 1, (2, n, 1)) * [[[2 * _SHIFT]], [[_LOG_SCALE]]]
    places = centres + np.exp(log_scales) * np.linspace(-1, 1, side)
    return places.astype(np.float32)


def _surface(points: np.ndarray, places: list[np.ndarray]) -> np.ndarray:
    """Cubic B-spline surfaces of control points (n, p, p, c) at places: (n, H, W, c)."""
    down, across = (_basis(each, points.shape[1]) for each in places)
    n, height, _ = down.shape
    rows = down @ points.reshape(n, points.shape[1], -1)
    return across[:, None] @ rows.reshape(n, height, *points.shape[2:])


def _basis(places: np.ndarray, n_points: int) -> np.ndarray:
    """What each control point counts at each place: (n, side, p), 1.2 in the mean square."""
    # Control points lie evenly from -1 to 1, and outside the field is what it is at its edge.
    at = (places.clip(-1, 1) + 1) / 2 * (n_points - 1)
    distance = np.abs(at[..., None] - np.arange(n_points, dtype=np.float32))
    near = 2 / 3 - distance**2 + distance**3 / 2
    return 1.5 * np.where(distance < 1, near, np.clip(2 - distance, 0, None) ** 3 / 6)
