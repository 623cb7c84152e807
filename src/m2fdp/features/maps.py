"""The feature maps by name: from images to coefficients, of which a projection leaves few."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate, pad, unfold

from m2fdp.features.scattering import N_PATHS, STRIDE, scattering


@cache
def windows(size: int, cells: int) -> Tensor:
    """The weights of a line of pixels in each of its cells: float64 (cells, size), rows sum to one.

    They are Gaussians around the cells' middles, half a cell wide: what moves by half a cell then
    changes its features little, from which classifiers behind much noise gain most.
    """
    side = size / cells
    pixels, middles = torch.arange(size) + 0.5, (torch.arange(cells) + 0.5) * side
    distances = (pixels.double() - middles.double()[:, None]) / (side / 2)
    return (-distances.square() / 2).softmax(dim=1)


def averaged(maps: Tensor, cells: tuple[int, int]) -> Tensor:
    """Maps (..., H, W) to their means over windows, (..., *cells)."""
    by_row, by_column = (
        windows(size, count) for size, count in zip(maps.shape[-2:], cells, strict=True)
    )
    # One product for both sides: two small ones take longer.
    weights = torch.kron(by_row, by_column).to(maps)
    return (maps.flatten(-2) @ weights.T).unflatten(-1, cells)


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
        answers = self.weights @ standardised(patches, (1,), _FLAT) - self.offsets[:, None]
        maps = answers.reshape(len(images), -1, rows, columns)
        excesses = ((sign * maps - settings.threshold).relu_() for sign in (1, -1))
        return torch.cat([averaged(each, (settings.cells,) * 2) for each in excesses], dim=1)


def fit_filters(images: Tensor, settings: PatchSettings) -> Filters:
    """Random patches of public images, float32 (n, C, H, W) in [0, 1], whitened by the statistics
    of many and their mirror images."""
    rng = np.random.default_rng(_SEED)
    patches = _draw(pad(images, (settings.padding,) * 4), settings.side, rng)
    both_ways = torch.cat([patches, patches.flip(-1)]).flatten(1)
    drawn = standardised(both_ways, (1,), _FLAT).double()
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


def _draw(images: Tensor, side: int, rng: np.random.Generator) -> Tensor:
    """Patches (many, C, side, side) of random places in random images."""
    n, _, height, width = images.shape
    drawn = rng.integers(n, size=_N_PATCHES)
    tops, lefts = (rng.integers(whole - side + 1, size=_N_PATCHES) for whole in (height, width))
    rows = tops[:, None, None] + np.arange(side)[:, None]
    columns = lefts[:, None, None] + np.arange(side)
    return images[drawn[:, None, None], :, rows, columns].permute(0, 3, 1, 2)


FILE = Path(__file__).with_name("contrastive.npz")
# Of the drawings that it has learnt from, in pixels.
SIDE = 28
# A side, over whose windows the last maps are averaged.
CELLS = 4
# Added to an image's deviation, lest the noise of what has no contrast become its content.
_EVEN = 0.05


@dataclass(frozen=True)
class Layer:
    """A convolution whose outputs are rectified.

    Attributes:
        channels: the number of its outputs.
        side: pixels of its kernels' side.
        stride: pixels from one output to the next.
    """

    channels: int
    side: int
    stride: int


LAYERS = (Layer(32, 5, 2), Layer(64, 3, 1), Layer(128, 3, 2), Layer(128, 3, 1))
N_RESPONSES = LAYERS[-1].channels * CELLS**2


def responses(images: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """The last layer's maps of grey images (n, 1, H, W) in [0, 1], averaged over windows: (n, m).

    Args:
        weights: the kernels and offsets of each layer; see `shipped`.
    """
    if images.shape[2:] != (SIDE, SIDE):
        images = interpolate(images, (SIDE, SIDE), mode="bilinear", antialias=True)
    maps = contrasted(images)
    for number, layer in enumerate(LAYERS):
        kernels, offsets = weights[f"kernels_{number}"], weights[f"offsets_{number}"]
        maps = conv2d(maps, kernels, offsets, layer.stride, layer.side // 2).relu_()
    return averaged(maps, (CELLS, CELLS)).flatten(1)


def contrasted(images: Tensor) -> Tensor:
    """Images (n, C, H, W) less their own mean, divided by their own deviation."""
    deviations, means = torch.std_mean(images, dim=(1, 2, 3), keepdim=True)
    return (images - means) / (deviations + _EVEN)


@cache
def shipped() -> dict[str, Tensor]:
    """The weights that come with the package, float32: of layer k from 0 `kernels_k`, (channels,
    channels before, side, side), and `offsets_k`, (channels,)."""
    with np.load(FILE) as stored:
        return {name: torch.as_tensor(stored[name]).float() for name in stored.files}


@cache
def network_source() -> dict[str, str]:
    """The network with a digest of the file that its weights lie in."""
    digest = blake2b(FILE.read_bytes(), digest_size=16).hexdigest()
    return {"contrastive network trained on drawings": digest}


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


def standardised(maps: Tensor, dims: tuple[int, ...], flat: float = 1e-5) -> Tensor:
    """Maps (n, ...) less their mean over some dimensions, divided by their deviation.

    An image's statistics of itself; no other image counts. What has no contrast becomes zero.

    Args:
        flat: number added to the variances.
    """
    centred = maps - maps.mean(dim=dims, keepdim=True)
    return centred / (centred.square().mean(dim=dims, keepdim=True) + flat).sqrt()


def _mirrored_too(answers: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """The average over images and their mirror images: of photographs, as writing has a side."""
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
