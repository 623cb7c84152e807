"""Whitened patches of public images as filters (Coates and Ng 2012), thresholded and averaged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, unfold

from m2fdp.features.windows import averaged

# Added to a patch's variance, for pixels in [0, 1].
_FLAT = 10 / 255**2
_N_PATCHES = 40_000
_SEED = 20_112


@dataclass(frozen=True)
class PatchSettings:
    """What filters there are and how their answers are summed up.

    Attributes:
        side: pixels of a patch's side.
        stride: pixels from one patch to the next.
        padding: black pixels around the image.
        n_filters: K.
        ridge: what whitening adds to the variances of normalised patches, whose mean is about 1.
        threshold: what an answer must exceed, in deviations of all answers to public patches.
        cells: a side, over whose windows answers are averaged.
    """

    side: int
    stride: int
    padding: int
    n_filters: int
    ridge: float
    threshold: float
    cells: int


@dataclass(frozen=True, eq=False)
class Filters:
    """What answers are linear in, for patches less their mean and divided by their deviation.

    Attributes:
        weights: float32 (K, C * side^2).
        offsets: float32 (K,), what the mean patch answers.
    """

    weights: Tensor
    offsets: Tensor

    def __call__(self, images: Tensor, settings: PatchSettings) -> Tensor:
        """(n, C, H, W) to (n, 2 K, cells, cells): how much, on average over a cell, patches
        exceed the threshold along each filter, then how much against each."""
        framed = pad(images, (settings.padding,) * 4)
        rows, columns = ((side - settings.side) // settings.stride + 1 for side in framed.shape[2:])
        patches = unfold(framed, settings.side, stride=settings.stride)
        answers = self.weights @ normalised(patches, dim=1) - self.offsets[:, None]
        maps = answers.reshape(len(images), -1, rows, columns)
        excesses = ((sign * maps - settings.threshold).relu_() for sign in (1, -1))
        return torch.cat([averaged(each, (settings.cells,) * 2) for each in excesses], dim=1)


def fit_filters(images: Tensor, settings: PatchSettings) -> Filters:
    """Random patches of public images, float32 (n, C, H, W) in [0, 1], whitened by the statistics
    of many and their mirror images."""
    rng = np.random.default_rng(_SEED)
    patches = _draw(pad(images, (settings.padding,) * 4), settings.side, rng)
    both_ways = torch.cat([patches, patches.flip(-1)]).flatten(1)
    drawn = normalised(both_ways, dim=1).double()
    mean = drawn.mean(dim=0)
    centred = drawn - mean
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(drawn))
    whitening = (vectors * (values.clamp_min(0) + settings.ridge).rsqrt()) @ vectors.T
    # A patch without contrast would be a filter that answers nothing: those come last.
    plain = both_ways[: len(patches)].std(dim=1) < 0.05
    chosen = centred[plain.int().argsort(stable=True)[: settings.n_filters]] @ whitening
    weights = chosen / chosen.norm(dim=1, keepdim=True).clamp_min(1e-12) @ whitening
    weights /= (centred[:4000] @ weights.T).std()
    return Filters(weights.float(), (weights @ mean).float())


def normalised(patches: Tensor, dim: int) -> Tensor:
    """Each patch less its own mean, divided by its own deviation."""
    centred = patches - patches.mean(dim=dim, keepdim=True)
    return centred / (centred.square().mean(dim=dim, keepdim=True) + _FLAT).sqrt()


def _draw(images: Tensor, side: int, rng: np.random.Generator) -> Tensor:
    """Patches (many, C, side, side) of random places in random images."""
    n, _, height, width = images.shape
    drawn = rng.integers(n, size=_N_PATCHES)
    tops, lefts = (rng.integers(whole - side + 1, size=_N_PATCHES) for whole in (height, width))
    rows = tops[:, None, None] + np.arange(side)[:, None]
    columns = lefts[:, None, None] + np.arange(side)
    return images[drawn[:, None, None], :, rows, columns].permute(0, 3, 1, 2)
