"""The feature maps by name: from images to coefficients, of which a projection leaves few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from m2fdp.data.features import patches
from m2fdp.data.features.patches import Filters, fit_filters
from m2fdp.data.features.projection import standardised
from m2fdp.data.features.scattering import N_PATHS, STRIDE, scattering

Shape = tuple[int, int, int]
Fitted = Mapping[str, Tensor]


class FeatureMap(Protocol):
    """A pure function of one image and of what was fitted on public images."""

    def count(self, shape: Shape) -> int:
        """How many coefficients m an image of (C, H, W) has."""

    def fit(self, images: Tensor) -> Fitted:
        """What the map takes from public images, float32 (n, C, H, W) in [0, 1], by name."""

    def __call__(self, images: Tensor, fitted: Fitted) -> Tensor:
        """Coefficients (n, m) of images (n, C, H, W)."""


class ScatteringMap:
    """Scattering paths, each over all channels standardised inside the record."""

    # Cells a side of a path's map, at most: of three channels fewer.
    _CELLS = {1: 7, 3: 4}

    def _cells(self, shape: Shape) -> tuple[int, int]:
        channels, height, width = shape
        most = self._CELLS[channels]
        return min(-(-height // STRIDE), most), min(-(-width // STRIDE), most)

    def count(self, shape: Shape) -> int:
        height, width = self._cells(shape)
        return shape[0] * N_PATHS * height * width

    def fit(self, images: Tensor) -> Fitted:
        """Nothing: wavelets are given."""
        return {}

    def __call__(self, images: Tensor, fitted: Fitted) -> Tensor:
        n, channels, height, width = images.shape
        cells = self._cells((channels, height, width))
        # The root brings strong paths and weak ones closer.
        maps = adaptive_avg_pool2d(scattering(images), cells).clamp_min(0).sqrt()
        by_path = maps.reshape(n, channels, N_PATHS, *cells).transpose(1, 2)
        return standardised(by_path).flatten(1)


class PatchMap:
    """Answers to whitened patches; in each cell standardised over the filters."""

    _CELLS = 3

    def count(self, shape: Shape) -> int:
        return 2 * patches.N_FILTERS * self._CELLS**2

    def fit(self, images: Tensor) -> Fitted:
        filters = fit_filters(images)
        return {"weights": filters.weights, "offsets": filters.offsets}

    def __call__(self, images: Tensor, fitted: Fitted) -> Tensor:
        filters = Filters(fitted["weights"], fitted["offsets"])
        # The root brings rare strong answers and frequent weak ones closer.
        by_cell = filters(images, self._CELLS).sqrt().flatten(2).transpose(1, 2)
        return standardised(by_cell).flatten(1)


class BothMaps:
    """The coefficients of one after those of the other."""

    _MAPS = (ScatteringMap(), PatchMap())

    def count(self, shape: Shape) -> int:
        return sum(one.count(shape) for one in self._MAPS)

    def fit(self, images: Tensor) -> Fitted:
        return {name: value for one in self._MAPS for name, value in one.fit(images).items()}

    def __call__(self, images: Tensor, fitted: Fitted) -> Tensor:
        return torch.cat([one(images, fitted) for one in self._MAPS], dim=1)


MAPS: Mapping[str, FeatureMap] = {
    "scattering": ScatteringMap(),
    "patches": PatchMap(),
    "both": BothMaps(),
}
