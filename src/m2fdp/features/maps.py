"""The feature maps by name: from images to coefficients, of which a projection leaves few."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from math import pi, prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate, pad, unfold

from m2fdp.core.models.checks import Shape

Fitted = Mapping[str, Tensor]


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


# The scattering transform: moduli of wavelets of wavelets, averaged over a few pixels. Its filters
# are fixed: nothing is learnt, from nobody's records (Mallat 2012; for private learning Tramèr and
# Boneh 2021). Two scales, eight orientations, so 1 + 16 + 64 = 81 paths a channel.
ORIENTATIONS = 8
N_PATHS = 1 + 2 * ORIENTATIONS + ORIENTATIONS**2
# Pixels that one cell of a path's map stands for, a side: 2 to the number of scales.
STRIDE = 4


def scattering(images: Tensor) -> Tensor:
    """Paths up to the second order at two scales, of images (n, C, H, W).

    Before the wavelets, the image goes on as its own mirror image over each border.

    Returns:
        (n, 81 C, H / 4, W / 4), rounded up; a channel's paths stand together. They are its mean,
        fine moduli, coarse moduli, and coarse moduli of each fine one, by orientation.
    """
    n, channels, height, width = images.shape
    single = images.reshape(n * channels, height, width)
    fine = _moduli(single, 0)
    # Coarse wavelets of what fine ones leave hold nothing above half the resolution.
    second = _moduli(fine.flatten(0, 1), 1, stride=2).reshape(
        n * channels, ORIENTATIONS**2, (height + 1) // 2, (width + 1) // 2
    )
    first = torch.cat([single[:, None], fine, _moduli(single, 1)], dim=1)
    paths = [_blurred(first, 1.6, STRIDE), _blurred(second, 0.8, STRIDE // 2)]
    return torch.cat(paths, dim=1).reshape(n, channels * N_PATHS, *paths[0].shape[2:])


def morlet(scale: int, orientation: float) -> np.ndarray:
    """A Morlet wavelet: complex (s, s), s odd, of mean zero.

    A plane wave of 3/4 pi / 2^scale radians a pixel, under a Gaussian of 0.8 * 2^scale pixels along
    the wave and twice that across. So much of it is taken off that the mean is zero.

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


def _blurred(maps: Tensor, sigma: float, stride: int) -> Tensor:
    """Maps (..., H, W) with a cell every `stride` pixels."""
    by_row, by_column = (
        torch.as_tensor(averaging(size, sigma, stride), dtype=maps.dtype, device=maps.device)
        for size in maps.shape[-2:]
    )
    return by_row @ maps @ by_column.T


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


def patch_answers(images: Tensor, filters: Fitted, settings: PatchSettings) -> Tensor:
    """(n, C, H, W) to (n, 2 K, cells, cells): how much, on average over a cell, patches exceed the
    threshold along each filter, then how much against each."""
    framed = pad(images, (settings.padding,) * 4)
    rows, columns = ((side - settings.side) // settings.stride + 1 for side in framed.shape[2:])
    patches = standardised(unfold(framed, settings.side, stride=settings.stride), (1,), _FLAT)
    answers = filters["weights"] @ patches - filters["offsets"][:, None]
    maps = answers.reshape(len(images), -1, rows, columns)
    excesses = ((sign * maps - settings.threshold).relu_() for sign in (1, -1))
    return torch.cat([averaged(each, (settings.cells,) * 2) for each in excesses], dim=1)


def fit_filters(images: Tensor, settings: PatchSettings) -> dict[str, Tensor]:
    """Random patches of public images, float32 (n, C, H, W) in [0, 1], whitened by the statistics
    of many and their mirror images: `weights` (K, C * side^2), which take patches less their mean
    and over their deviation, and `offsets` (K,), what the mean patch answers."""
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
    return {"weights": weights.float(), "offsets": (weights @ mean).float()}


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


# The mean of the colours, red against blue, and green against both.
_OPPONENTS = [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 0, -1 / 2], [-1 / 4, 1 / 2, -1 / 4]]


@dataclass(frozen=True)
class FeatureMap:
    """A pure function of one image and of what was fitted on public images.

    Attributes:
        channels: those of the images that it takes: 1 of grey ones, 3 of colours. What is chosen
            for each was chosen on training records of public benchmarks.
        count: how many coefficients m an image of (C, H, W) has.
        answers: images (n, C, H, W) and what was fitted, to coefficients (n, m).
        fit: public images, float32 (n, C, H, W) in [0, 1], to what the map takes from them.
    """

    channels: tuple[int, ...]
    count: Callable[[Shape], int]
    answers: Callable[[Tensor, Fitted], Tensor]
    fit: Callable[[Tensor], Fitted] = lambda images: {}


# Cells a side of a path's map, at most, by channels.
_CELLS = {1: 7, 3: 4}


def _cells(shape: Sequence[int]) -> tuple[int, int]:
    limit, (height, width) = _CELLS[shape[0]], (-(-side // STRIDE) for side in shape[1:])
    return min(height, limit), min(width, limit)


def _scattered(images: Tensor, fitted: Fitted) -> Tensor:
    """Scattering paths, each standardised inside the record, over its channels and cells; of
    colours the opponent ones, averaged with the mirror image's."""
    n, channels = images.shape[:2]
    cells = _cells(images.shape[1:])

    def paths(images: Tensor) -> Tensor:
        maps = averaged(scattering(images), cells)
        return maps.reshape(n, channels, N_PATHS, *cells).transpose(1, 2)

    if channels == 1:
        # The root brings strong paths and weak ones closer.
        return standardised(paths(images).clamp_min(0).sqrt(), dims=(2, 3, 4)).flatten(1)
    opponents = torch.einsum("oc,nchw->nohw", images.new_tensor(_OPPONENTS), images)
    return standardised(_mirrored_too(paths, opponents), dims=(2, 3, 4)).flatten(1)


_PATCHES = {
    1: PatchSettings(
        side=8, stride=1, padding=2, n_filters=160, ridge=0.3, threshold=0.25, cells=6
    ),
    3: PatchSettings(side=6, stride=2, padding=0, n_filters=400, ridge=0.1, threshold=1.0, cells=3),
}


def _of_patches(images: Tensor, fitted: Fitted) -> Tensor:
    """Roots of answers to whitened patches, standardised inside the record: of grey images over
    the cells of each filter; of colours, averaged with the mirror image's, over the filters."""
    settings = _PATCHES[images.shape[1]]
    if images.shape[1] == 1:
        answers = patch_answers(images, fitted, settings)
        return standardised(answers.sqrt(), dims=(2, 3)).flatten(1)
    answers = _mirrored_too(lambda each: patch_answers(each, fitted, settings), images)
    return standardised(answers.sqrt(), dims=(1,)).flatten(1)


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


_SCATTERING = FeatureMap((1, 3), lambda shape: shape[0] * N_PATHS * prod(_cells(shape)), _scattered)
_OF_PATCHES = FeatureMap(
    (1, 3),
    lambda shape: 2 * _PATCHES[shape[0]].n_filters * _PATCHES[shape[0]].cells ** 2,
    _of_patches,
    lambda images: fit_filters(images, _PATCHES[images.shape[1]]),
)
# What a network that has learnt from drawings answers; it ships with the package.
_CONTRASTIVE = FeatureMap((1,), lambda shape: N_RESPONSES, responses, lambda images: shipped())
MAPS: Mapping[str, tuple[FeatureMap, ...]] = {
    "scattering": (_SCATTERING,),
    "patches": (_OF_PATCHES,),
    "contrastive": (_CONTRASTIVE,),
    "both": (_SCATTERING, _OF_PATCHES),
    "all": (_SCATTERING, _OF_PATCHES, _CONTRASTIVE),
}


def sources_of(name: str) -> dict[str, str]:
    """What shaped the maps of that name before `fit`: names and digests."""
    return network_source() if _CONTRASTIVE in MAPS[name] else {}
