"""Leaves: random pictures in which nobody has put anything, and no camera took part.

Like photographs they have bodies of every size before each other, edges, light from a side (Lee,
Mumford and Huang 2001), and the spectrum of nature, 1/f^a. What they teach: Baradad et al. 2021.
"""

import numpy as np

_AT_A_TIME = 500  # pictures
# Lengths below are of a picture of that side, and grow with it.
_USUAL_SIDE = 32
# Lightness, red against blue, and green against both, each of length one.
_OPPONENTS = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
_EXPONENTS = (1.0, 2.0)
# Bounds: of the two opponents beside lightness, of a picture's deviation, and of its mean.
_OPPONENT, _CONTRAST, _MEAN = ((0.1, 0.05), (0.5, 0.3)), (0.12, 0.28), (0.35, 0.6)
_FEWEST, _MOST = 2, 13  # leaves
# Radii have the density r^-2.
_SMALLEST, _LARGEST = 2.5, 16.0
_OUTSIDE = 4.0  # that far from the border a leaf may have its middle
_PLAIN = 0.6  # of leaves; half of the grounds
_SHADE = 0.5
_BLUR = (0.2, 0.8)


def leaves(n: int, shape: tuple[int, int, int], rng: np.random.Generator) -> np.ndarray:
    """Random pictures, float32 (n, C, H, W) in [0, 1]; grey ones are the means of the colours."""
    channels, *size = shape
    pictures = np.empty((n, *shape), dtype=np.float32)
    for start in range(0, n, _AT_A_TIME):
        chunk = pictures[start : start + _AT_A_TIME]
        colours = _pictures(len(chunk), size, rng)
        chunk[:] = colours if channels == 3 else colours.mean(axis=1, keepdims=True)
    return pictures


def noise(n: int, size: list[int], rng: np.random.Generator) -> np.ndarray:
    """Coloured 1/f^a noise, (n, 3, H, W) in [0, 1]."""
    frequencies = np.hypot(np.fft.fftfreq(size[0])[:, None], np.fft.rfftfreq(size[1]))
    frequencies[0, 0] = np.inf
    spectrum = np.fft.rfft2(rng.standard_normal((n, 3, *size)))
    spectrum *= frequencies ** -_each(rng.uniform(*_EXPONENTS, n))
    fields = np.fft.irfft2(spectrum, s=size)
    fields /= fields.std(axis=(2, 3), keepdims=True)
    strengths = np.column_stack([np.ones(n), rng.uniform(*_OPPONENT, (n, 2))])
    colours = np.einsum("nohw,no,oc->nchw", fields, strengths, _OPPONENTS)
    colours *= _each(rng.uniform(*_CONTRAST, n)) / colours.std(axis=(1, 2, 3), keepdims=True)
    return np.clip(colours + _each(rng.uniform(*_MEAN, n)), 0, 1)


def _pictures(n: int, size: list[int], rng: np.random.Generator) -> np.ndarray:
    """(n, 3, H, W): leaves before a ground that one colour flows over into another on."""
    height, width = size
    scale = min(size) / _USUAL_SIDE
    y, x = np.mgrid[:height, :width]
    textures = noise(n, size, rng)

    def uniform(low: float, high: float) -> np.ndarray:
        return _each(rng.uniform(low, high, n))

    def mostly(share: float) -> np.ndarray:
        return _each(rng.random(n) < share)

    def with_texture(colours: np.ndarray) -> np.ndarray:
        return (colours + textures[rng.integers(n, size=n)]) / 2

    def colour() -> np.ndarray:
        which, row, column = (rng.integers(limit, size=n) for limit in (n, height, width))
        return _each(textures[which, :, row, column])

    angle = uniform(0, 2 * np.pi)
    across = (x * np.cos(angle) + y * np.sin(angle)) / min(size)
    pictures = colour() * (1 - across) + colour() * across
    pictures = np.where(mostly(0.5), pictures, with_texture(pictures))
    counts = rng.integers(_FEWEST, _MOST + 1, n)
    for number in range(_MOST):
        radius = scale / (1 / _SMALLEST - uniform(0, 1 / _SMALLEST - 1 / _LARGEST))
        reach = _OUTSIDE * scale
        row, column = uniform(-reach, height + reach), uniform(-reach, width + reach)
        angle, narrow, kind = uniform(0, np.pi), uniform(0.3, 1), _each(rng.integers(3, size=n))
        u = ((x - column) * np.cos(angle) + (y - row) * np.sin(angle)) / radius
        v = ((y - row) * np.cos(angle) - (x - column) * np.sin(angle)) / radius
        inside = np.select(
            [kind == 0, kind == 1],
            [u**2 + (v / narrow) ** 2 < 1, (abs(u) < 1) & (abs(v) < narrow)],
            (u + abs(v) / narrow < 0.7) & (u > -0.7),
        )
        body = colour() * (1 + uniform(-_SHADE, _SHADE) * u + uniform(-_SHADE, _SHADE) * v)
        filled = np.where(mostly(_PLAIN), body, with_texture(body))
        pictures = np.where(inside & _each(number < counts), filled, pictures)
    return np.clip(_blurred(pictures, scale * rng.uniform(*_BLUR, n)), 0, 1)


def _blurred(pictures: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Each picture smoothed by a Gaussian of its own deviation, in pixels."""

    def weights(side: int) -> np.ndarray:
        distances = np.subtract.outer(np.arange(side), np.arange(side))
        kernels = np.exp(-(distances**2) / (2 * deviations[:, None, None] ** 2))
        return (kernels / kernels.sum(axis=2, keepdims=True))[:, None]

    rows, columns = (weights(side) for side in pictures.shape[2:])
    return rows @ pictures @ columns.swapaxes(2, 3)


def _each(values: np.ndarray) -> np.ndarray:
    """Values (n, ...) of pictures, to meet (n, C, H, W)."""
    return values.reshape(*values.shape, *[1] * (4 - values.ndim))
