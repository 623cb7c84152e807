"""The scattering transform: moduli of wavelets of wavelets, averaged over a few pixels.

Its filters are fixed: nothing is learnt, from nobody's records (Mallat 2012; for private learning
Tramèr and Boneh 2021). Two scales, eight orientations, so 1 + 16 + 64 = 81 paths a channel.
"""

from functools import cache
from math import pi

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d

ORIENTATIONS = 8
N_PATHS = 1 + 2 * ORIENTATIONS + ORIENTATIONS**2
# Pixels that one cell of a path's map stands for, a side: 2 to the number of scales.
STRIDE = 4


def scattering(images: Tensor) -> Tensor:
    """Paths up to the second order at two scales, of images (n, C, H, W).

    Before the wavelets, the image goes on as its own mirror image over each border.

    Returns:
        (n, 81 C, ceil(H / 4), ceil(W / 4)), the paths of a channel together: the mean, the fine
        and the coarse moduli by orientation, and the coarse moduli of each fine one.
    """
    n, channels, height, width = images.shape
    single = images.reshape(n * channels, height, width)
    fine = _moduli(single, 0)
    # Coarse wavelets of what fine ones leave hold nothing above half the resolution.
    second = _moduli(fine.flatten(0, 1), 1, stride=2).reshape(
        n * channels, ORIENTATIONS**2, (height + 1) // 2, (width + 1) // 2
    )
    first = torch.cat([single[:, None], fine, _moduli(single, 1)], dim=1)
    paths = [_averaged(first, 1.6, STRIDE), _averaged(second, 0.8, STRIDE // 2)]
    return torch.cat(paths, dim=1).reshape(n, channels * N_PATHS, *paths[0].shape[2:])


def morlet(scale: int, orientation: float) -> np.ndarray:
    """A Morlet wavelet: complex (s, s), s odd, of mean zero.

    A plane wave of 3/4 pi / 2^scale radians a pixel under a Gaussian of 0.8 * 2^scale pixels along
    it and twice that across, less so much of the Gaussian that the mean is zero.

    Args:
        scale: 0 for the finest.
        orientation: direction of the wave, in radians.
    """
    sigma, frequency = 0.8 * 2**scale, 0.75 * pi / 2**scale
    reach = int(np.ceil(2.5 * 2 * sigma))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    along = x * np.cos(orientation) + y * np.sin(orientation)
    across = y * np.cos(orientation) - x * np.sin(orientation)
    envelope = np.exp(-(along**2 + (across / 2) ** 2) / (2 * sigma**2))
    wave = envelope * np.exp(1j * frequency * along)
    wave -= envelope * wave.sum() / envelope.sum()
    return wave / (4 * pi * sigma**2)


def averaging(size: int, sigma: float, stride: int) -> np.ndarray:
    """Gaussian means of a line of pixels, one every `stride`: (ceil(size / stride), size), rows
    that sum to one."""
    reach = int(np.ceil(3 * sigma))
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    pixels = mirrored_indices(size, reach)
    result = np.zeros((len(range(0, size, stride)), size))
    for row, start in zip(result, range(0, size, stride), strict=True):
        np.add.at(row, pixels[start : start + len(weights)], weights)
    return result


def mirrored_indices(size: int, margin: int) -> np.ndarray:
    """The pixels of a line that goes on over both ends, as often mirrored as it takes."""
    return np.pad(np.arange(size), margin, mode="symmetric")


@cache
def _wavelets(scale: int) -> Tensor:
    """Of all orientations, (16, 1, s, s), real parts before imaginary ones."""
    waves = np.stack([morlet(scale, pi * k / ORIENTATIONS) for k in range(ORIENTATIONS)])
    return torch.as_tensor(np.concatenate([waves.real, waves.imag])[:, None], dtype=torch.float32)


def _moduli(images: Tensor, scale: int, stride: int = 1) -> Tensor:
    """Images (n, H, W) to the moduli (n, 8, H / stride, W / stride) of the wavelets of a scale."""
    bank = _wavelets(scale).to(images.device)
    for dim in (-2, -1):
        indices = mirrored_indices(images.shape[dim], bank.shape[-1] // 2)
        images = images.index_select(dim, torch.as_tensor(indices, device=images.device))
    real, imaginary = conv2d(images[:, None], bank, stride=stride).split(ORIENTATIONS, dim=1)
    return torch.hypot(real, imaginary)


def _averaged(maps: Tensor, sigma: float, stride: int) -> Tensor:
    """Maps (..., H, W) with a cell every `stride` pixels."""
    by_row, by_column = (
        torch.as_tensor(averaging(size, sigma, stride), dtype=maps.dtype, device=maps.device)
        for size in maps.shape[-2:]
    )
    return by_row @ maps @ by_column.T
