"""Gaussian noise: one vector a message, or one for all messages that only feed a sum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import pi

import numpy as np
import torch
from torch import Tensor

from m2fdp.topology.network import Network

# Vectors are made several at a time, which saves more than the cache loses: so many numbers.
_NUMBERS_AT_A_TIME = 2**17


def standard_normals(streams: Iterable[np.random.Generator], like: Tensor) -> Iterator[Tensor]:
    """From each stream a standard normal vector (M,), like the rows of `like` (…, M).

    All are drawn on the CPU, in float64 if `like` is, and copied: no noise depends on the device.
    """
    size = like.shape[-1]
    dtype = np.dtype(np.float64 if like.dtype == torch.float64 else np.float32)
    half = -(-size // 4) * 2
    n_words = half * dtype.itemsize // 4
    streams, at_a_time = iter(streams), max(_NUMBERS_AT_A_TIME // size, 1)
    while some := list(islice(streams, at_a_time)):
        uniform = np.empty((2, len(some), half), dtype)
        for row, stream in enumerate(some):
            words = stream.bit_generator.random_raw(n_words)
            uniform[:, row] = words.view(f"i{dtype.itemsize}").reshape(2, half)
        yield from torch.from_numpy(_box_muller(*uniform)[:, :size]).to(like.device)


def _box_muller(radii: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Standard normal numbers (n, 2 m) from two arrays (n, m) that are used up.

    NumPy's own method takes twice the time: it has no vectorised loop. No number is beyond 6.7 in
    float32 and 9.4 in float64.

    Args:
        radii, angles: uniform signed integers of the width of their type, as floats.
    """
    dtype, bits = radii.dtype.type, 8 * radii.dtype.itemsize
    np.abs(radii, out=radii)
    radii *= dtype(2.0 ** (1 - bits))
    radii += dtype(2.0**-bits)  # in (0, 1]
    np.log(radii, out=radii)
    radii *= dtype(-2)
    np.sqrt(radii, out=radii)
    angles *= dtype(pi * 2.0 ** (1 - bits))
    drawn = np.empty((len(radii), 2, radii.shape[1]), dtype)
    np.cos(angles, out=drawn[:, 0])
    np.sin(angles, out=drawn[:, 1])
    drawn *= radii[:, None]
    return drawn.reshape(len(radii), -1)


def summed_deviations(
    network: Network, present: np.ndarray, deviations: Sequence[np.ndarray], top: int
) -> np.ndarray:
    """The standard deviation of the noise in each model of layer `top`: float64 (N_top,).

    Independent noises that nobody sees one by one only ever feed their sum, whose law is that
    of one Gaussian with the summed variance.

    Args:
        present: bool (N_L,), the devices that send.
        deviations: for layer l = 1…L, (N_l,), of the noise that each node adds to its message.
    """
    tree = network.tree
    variance = np.zeros(tree.n_devices)
    sent = present
    for layer in range(tree.depth, top, -1):
        messages = sent * (variance + deviations[layer - 1] ** 2)
        variance = np.bincount(
            tree.parents[layer - 1],
            weights=network.weights[layer - 1] ** 2 * messages,
            minlength=tree.n_nodes(layer - 1),
        )
        sent = np.ones_like(variance)
    return np.sqrt(variance)
