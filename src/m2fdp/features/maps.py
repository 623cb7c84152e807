"""The feature maps by name: from images to coefficients, of which a projection leaves few."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from m2fdp.features.contrastive import N_RESPONSES, network_source, responses, shipped
from m2fdp.features.patches import Filters, PatchSettings, fit_filters
from m2fdp.features.scattering import N_PATHS, STRIDE, scattering
from m2fdp.features.windows import averaged

Shape = tuple[int, int, int]  # of one image: (C, H, W)
Fitted = Mapping[str, Tensor]

# The mean of the colours, red against blue, and green against both.
_OPPONENTS = [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 0, -1 / 2], [-1 / 4, 1 / 2, -1 / 4]]


class FeatureMap(Protocol):
    """A pure function of one image and of what was fitted on public images."""

    @property
    def channels(self) -> tuple[int, ...]:
        """Those of the images that it takes: 1 of grey ones, 3 of colours. What is chosen for each
        was chosen on training records of public benchmarks."""

    def sources(self) -> dict[str, str]:
        """What shaped the map before `fit`: its name and a digest."""

    def count(self, shape: Shape) -> int:
        """How many coefficients m an image of (C, H, W) has."""

    def fit(self, images: Tensor) -> Fitted:
        """What the map takes from public images, float32 (n, C, H, W) in [0, 1], by name."""

    def __call__(self, images: Tensor, fitted: Fitted) -> Tensor:
        """Coefficients (n, m) of images (n, C, H, W)."""


class ScatteringMap:
    """Scattering paths, each standardised inside the record, over its channels and cells.

    Of colours the opponent ones, averaged with the mirror image's.
    """

    channels = (1, 3)
    # Cells a side of a path's map, at most.
    _CELLS = {1: 7, 3: 4}

    def _cells(self, shape: Shape) -> tuple[int, int]:
        channels, height, width = shape
        limit = self._CELLS[channels]
        return min(-(-height // STRIDE), limit), min(-(-width // STRIDE), limit)

    def sources(self) -> dict[str, str]:
        """Nothing: wavelets are given."""
        return {}

    def count(self, shape: Shape) -> int:
        height, width = self._cells(shape)
        return shape[0] * N_PATHS * height * width

    def fit(self, images: Tensor) -> Fitted:
        """Nothing, for the same reason."""
        return {}

    def __call__(self, images: Tensor, fitted: Fitted) -> Tensor:
        n, channels, height, width = images.shape
        cells = self._cells((channels, height, width))

        def paths(images: Tensor) -> Tensor:
            maps = averaged(scattering(images), cells)
            return maps.reshape(n, channels, N_PATHS, *cells).transpose(1, 2)

        if channels == 1:
            # The root brings strong paths and weak ones closer.
            return standardised(paths(images).clamp_min(0).sqrt(), dims=(2, 3, 4)).flatten(1)
        opponents = torch.einsum("oc,nchw->nohw", images.new_tensor(_OPPONENTS), images)
        return standardised(_mirrored_too(paths, opponents), dims=(2, 3, 4)).flatten(1)


class PatchMap:
    """Roots of answers to whitened patches, standardised inside the record: of grey images over
    the cells of each filter, of colours over the filters in each cell.

    Of colours the answers are averaged with the mirror image's.
    """

    channels = (1, 3)
    _SETTINGS = {
        1: PatchSettings(
            side=8, stride=1, padding=2, n_filters=160, ridge=0.3, threshold=0.25, cells=6
        ),
        3: PatchSettings(
            side=6, stride=2, padding=0, n_filters=400, ridge=0.1, threshold=1.0, cells=3
        ),
    }

    def sources(self) -> dict[str, str]:
        """Nothing: `fit` makes all filters."""
        return {}

    def count(self, shape: Shape) -> int:
        settings = self._SETTINGS[shape[0]]
        return 2 * settings.n_filters * settings.cells**2

    def fit(self, images: Tensor) -> Fitted:
        filters = fit_filters(images, self._SETTINGS[images.shape[1]])
        return {"weights": filters.weights, "offsets": filters.offsets}

    def __call__(self, images: Tensor, fitted: Fitted) -> Tensor:
        settings = self._SETTINGS[images.shape[1]]
        filters = Filters(fitted["weights"], fitted["offsets"])
        if images.shape[1] == 1:
            return standardised(filters(images, settings).sqrt(), dims=(2, 3)).flatten(1)
        answers = _mirrored_too(lambda each: filters(each, settings), images)
        return standardised(answers.sqrt(), dims=(1,)).flatten(1)


class ContrastiveMap:
    """What a network that has learnt from drawings answers to a grey image."""

    channels = (1,)

    def sources(self) -> dict[str, str]:
        return network_source()

    def count(self, shape: Shape) -> int:
        return N_RESPONSES

    def fit(self, images: Tensor) -> Fitted:
        """The weights that the package ships, whatever the images."""
        return shipped()

    def __call__(self, images: Tensor, fitted: Fitted) -> Tensor:
        return responses(images, fitted)


def standardised(maps: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Maps (n, ...) less their mean over some dimensions, divided by their deviation.

    An image's statistics of itself; no other image counts. What has no contrast becomes zero.
    """
    centred = maps - maps.mean(dim=dims, keepdim=True)
    return centred / (centred.square().mean(dim=dims, keepdim=True) + 1e-5).sqrt()


def _mirrored_too(answers: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """The average of what is answered to images and to their mirror images.

    Photographs show things, which have no side; grey images may be writing, which has.
    """
    return (answers(images) + answers(images.flip(-1))) / 2


MAPS: Mapping[str, tuple[FeatureMap, ...]] = {
    "scattering": (ScatteringMap(),),
    "patches": (PatchMap(),),
    "contrastive": (ContrastiveMap(),),
    "both": (ScatteringMap(), PatchMap()),
    "all": (ScatteringMap(), PatchMap(), ContrastiveMap()),
}


def sources_of(name: str) -> dict[str, str]:
    """What shaped the maps of that name before `fit`: names and digests."""
    return {source: digest for map_ in MAPS[name] for source, digest in map_.sources().items()}
