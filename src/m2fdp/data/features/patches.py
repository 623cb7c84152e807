"""Whitened patches of public images as filters (Coates and Ng 2012), thresholded and averaged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, unfold

# Pixels a side of a patch, and between two of them.
SIDE, STRIDE = 6, 2
# Half as many, for each of them is also looked for mirrored.
N_FILTERS = 400
# What a response must exceed, in deviations of whitened patches along a filter.
THRESHOLD = 0.7
# Added to a patch's variance, for pixels in [0, 1], and to those that whitening divides by.
_FLAT, _RIDGE = 10 / 255**2, 0.1
_N_PATCHES = 40_000
_SEED = 20_112


@dataclass(frozen=True, eq=False)
class Filters:
    """What responses are linear in, for patches less their mean and divided by their deviation.

    Attributes:
        weights: float32 (K, C * 36).
        offsets: float32 (K,), what the mean patch answers.
    """

    weights: Tensor
    offsets: Tensor

    def __call__(self, images: Tensor, cells: int) -> Tensor:
        """(n, C, H, W) to (n, 2 K, cells, cells): how much, on average over a cell, patches
        exceed the threshold along each filter, and against it; of image and mirror image."""
        here, mirrored = (self._responses(side, cells) for side in (images, images.flip(-1)))
        return (here + mirrored.flip(-1)) / 2

    def _responses(self, images: Tensor, cells: int) -> Tensor:
        rows, columns = ((side - SIDE) // STRIDE + 1 for side in images.shape[2:])
        patches = unfold(images, SIDE, stride=STRIDE)  # (n, C * 36, rows * columns)
        answers = self.weights @ normalised(patches, dim=1) - self.offsets[:, None]
        maps = answers.reshape(len(images), -1, rows, columns)
        both = ((sign * maps - THRESHOLD).relu_() for sign in (1, -1))
        return torch.cat([adaptive_avg_pool2d(beyond, cells) for beyond in both], dim=1)


def fit_filters(images: Tensor) -> Filters:
    """Random patches of public images, whitened by all of theirs.

    Args:
        images: float32 (n, C, H, W), in [0, 1].
    """
    rng = np.random.default_rng(_SEED)
    patches = _draw(images, _N_PATCHES, rng)
    both_ways = torch.cat([patches, patches.flip(-1)]).flatten(1)
    drawn = normalised(both_ways, dim=1)
    mean = drawn.mean(dim=0)
    centred = drawn - mean
    values, vectors = torch.linalg.eigh((centred.T @ centred).double() / len(drawn))
    whitening = (vectors * (values.clamp_min(0) + _RIDGE).rsqrt()) @ vectors.T
    chosen = centred[:N_FILTERS].double() @ whitening
    weights = chosen / chosen.norm(dim=1, keepdim=True).clamp_min(1e-12) @ whitening
    return Filters(weights.float(), (weights @ mean.double()).float())


def normalised(patches: Tensor, dim: int) -> Tensor:
    """Each patch less its own mean, divided by its own deviation."""
    centred = patches - patches.mean(dim=dim, keepdim=True)
    return centred / (centred.square().mean(dim=dim, keepdim=True) + _FLAT).sqrt()


def _draw(images: Tensor, count: int, rng: np.random.Generator) -> Tensor:
    """Patches (count, C, 6, 6) of random places in random images."""
    n, _, height, width = images.shape
    of = rng.integers(n, size=count)
    tops, lefts = (rng.integers(side - SIDE + 1, size=count) for side in (height, width))
    # By the image's place first, so that all channels of a patch stay together.
    rows = tops[:, None, None] + np.arange(SIDE)[:, None]
    columns = lefts[:, None, None] + np.arange(SIDE)
    return images[of[:, None, None], :, rows, columns].permute(0, 3, 1, 2)
