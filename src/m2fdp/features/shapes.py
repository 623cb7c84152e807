"""Bright shapes and lines on black, of random smooth outlines: public images that show nothing.

That records are bright things on black is all they know of a data set.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Lengths below are of an image of that side, and grow with it.
_USUAL_SIDE = 28


def shapes(textures: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As many images as textures, float32 (n, C, H, W) in [0, 1] both: shapes filled with them,
    lines, and textures, a third of each."""
    size = textures.shape[2:]
    first, second, third = np.array_split(textures, 3)
    filled = _filled(len(first), size, rng)[:, None] * shaded(first, rng)
    drawn = np.broadcast_to(lines(len(second), size, rng)[:, None], second.shape)
    return np.concatenate([filled, drawn, third]).astype(np.float32)


def _filled(n: int, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Masks (n, H, W) of blobs of different sizes."""
    return edge(blob(n, size, rng) + rng.uniform(-0.6, 0.8, (n, 1, 1)))


def blob(n: int, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Fields (n, H, W) that are positive inside a smooth outline around the middle."""
    return smooth_fields(n, size, (2.5, 7.0), rng) + 1.8 * _ellipse(n, size, rng)


def lines(n: int, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Masks (n, H, W) of level lines of smooth fields, 1.6 to 4 pixels wide, in an ellipse."""
    scale = min(size) / _USUAL_SIDE
    field = smooth_fields(n, size, (2.8, 6.5), rng) - rng.uniform(-0.6, 0.6, (n, 1, 1))
    distance = np.abs(field) / (_slope(field) + 0.03 / scale)
    line = np.clip(0.5 + rng.uniform(0.8, 2.0, (n, 1, 1)) * scale - distance, 0, 1)
    outline = _ellipse(n, size, rng) + 0.25 * smooth_fields(n, size, (2.0, 5.0), rng)
    return line * edge(outline)


def shaded(textures: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A third of the textures as they are, a third paler, a third plain; some darker."""
    n = len(textures)
    kind = rng.integers(3, size=(n, 1, 1, 1))
    paler = 0.25 + 0.75 * textures * rng.random((n, 1, 1, 1))
    chosen = np.where(kind == 0, textures, np.where(kind == 1, paler, 1.0))
    return np.clip(chosen * rng.uniform(0.6, 1.2, (n, 1, 1, 1)), 0, 1)


def smooth_fields(
    n: int, size: Sequence[int], lengths: tuple[float, float], rng: np.random.Generator
) -> np.ndarray:
    """Gaussian random fields (n, H, W) of mean 0 and variance 1 each.

    Args:
        lengths: bounds, in pixels of the usual side, that the deviation of the Gaussian that
            smoothes white noise is drawn between, each scale equally often.
    """
    # A field goes round; a part of it does not.
    height, width = (side * 3 // 2 for side in size)
    low, high = (np.log(length * min(size) / _USUAL_SIDE) for length in lengths)
    deviations = np.exp(rng.uniform(low, high, (n, 1, 1)))
    squared = np.fft.fftfreq(height)[:, None] ** 2 + np.fft.rfftfreq(width) ** 2
    spectrum = np.fft.rfft2(rng.standard_normal((n, height, width)))
    spectrum *= np.exp(-2 * np.pi**2 * deviations**2 * squared)
    field = np.fft.irfft2(spectrum, s=(height, width))[:, : size[0], : size[1]]
    centred = field - field.mean(axis=(1, 2), keepdims=True)
    return centred / centred.std(axis=(1, 2), keepdims=True)


def _ellipse(n: int, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """(n, H, W): 1 in the middle of a random ellipse near the centre, 0 on it, negative outside."""
    scale = min(size) / _USUAL_SIDE
    y, x = np.ogrid[: size[0], : size[1]]
    centres = rng.normal(0, 1.5 * scale, (2, n, 1, 1))
    angle = rng.uniform(0, np.pi, (n, 1, 1))
    along, across = rng.uniform(6 * scale, 13 * scale, (2, n, 1, 1))
    y, x = y - (size[0] - 1) / 2 - centres[0], x - (size[1] - 1) / 2 - centres[1]
    u, v = y * np.cos(angle) + x * np.sin(angle), x * np.cos(angle) - y * np.sin(angle)
    return 1 - (u / along) ** 2 - (v / across) ** 2


def edge(field: np.ndarray) -> np.ndarray:
    """1 where the field is positive and 0 where it is negative, with an edge of one pixel."""
    return np.clip(0.5 + field / (_slope(field) + 1e-3), 0, 1)


def _slope(field: np.ndarray) -> np.ndarray:
    rows, columns = np.gradient(field, axis=(1, 2))
    return np.hypot(rows, columns)
