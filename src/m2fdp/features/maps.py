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
from torch.nn.functional import conv2d, interpolate, pad, softshrink, unfold

from m2fdp.core.models.checks import Shape

Fitted = Mapping[str, Tensor]


@cache
def windows(size: int, cells: int, spread: float = 0.5) -> Tensor:
    """The weights of a line of pixels in each of its cells: float64 (cells, size), rows sum to one.

    They are Gaussians around the cells' middles: what moves by half a cell then changes its
    features little, from which classifiers behind much noise gain most.

    Args:
        spread: their deviation, in cells.
    """
    side = size / cells
    pixels, middles = torch.arange(size) + 0.5, (torch.arange(cells) + 0.5) * side
    distances = (pixels.double() - middles.double()[:, None]) / (side * spread)
    return (-distances.square() / 2).softmax(dim=1)


def averaged(maps: Tensor, cells: tuple[int, int], spread: float = 0.5) -> Tensor:
    """Maps (..., H, W) to their means over windows, (..., *cells)."""
    by_row, by_column = (
        windows(size, count, spread) for size, count in zip(maps.shape[-2:], cells, strict=True)
    )
    # One product for both sides: two small ones take longer.
    weights = torch.kron(by_row, by_column).to(maps)
    return (maps.flatten(-2) @ weights.T).unflatten(-1, cells)


# The scattering transform: moduli of wavelets of wavelets, averaged over windows. Its filters are
# fixed: nothing is learnt, from nobody's records (Mallat 2012; for private learning Tramèr and
# Boneh 2021). Two scales, eight orientations, so 1 + 16 + 64 = 81 paths a channel.
ORIENTATIONS = 8
N_PATHS = 1 + 2 * ORIENTATIONS + ORIENTATIONS**2


@dataclass(frozen=True)
class WaveSettings:
    """Over what paths are averaged.

    Attributes:
        cells: a side, at most; a cell has at least four pixels a side.
        spread: the deviation of a cell's window, in cells.
    """

    cells: int
    spread: float

    def grid(self, shape: Sequence[int]) -> tuple[int, int]:
        """Rows and columns of the cells of images (..., H, W)."""
        rows, columns = (min(self.cells, -(-side // 4)) for side in shape[-2:])
        return rows, columns


def scattering(images: Tensor, settings: WaveSettings) -> Tensor:
    """Paths up to the second order at two scales, of images (n, C, H, W), averaged over windows.

    Coarse moduli are fine ones of what has half the resolution.

    Returns:
        (n, C, 81, rows, columns): of a channel its mean, fine moduli by orientation, coarse ones,
        and coarse ones of each fine one.
    """
    n, channels, height, width = images.shape
    single = images.reshape(n * channels, 1, height, width)
    first = torch.cat([single, _moduli(single)], dim=1)
    by_row, by_column = (windows(side, -(-side // 2)).to(first) for side in (height, width))
    half = by_row @ (first @ by_column.T)
    second = _moduli(half.flatten(0, 1)[:, None]).unflatten(0, (len(single), -1)).flatten(1, 2)
    cells = settings.grid(images.shape)
    paths = [averaged(each, cells, settings.spread) for each in (first, second)]
    return torch.cat(paths, dim=1).reshape(n, channels, N_PATHS, *cells)


def of_mirror_images(paths: Tensor) -> Tensor:
    """What `scattering` gives of the mirror images, from what it gives of the images."""
    # A wavelet meets the mirror image as its own mirror image meets the image.
    turned = -torch.arange(ORIENTATIONS) % ORIENTATIONS
    first, second = 1 + turned, (turned[:, None] * ORIENTATIONS + turned).flatten()
    orders = [first.new_zeros(1), first, ORIENTATIONS + first, 1 + 2 * ORIENTATIONS + second]
    return paths[:, :, torch.cat(orders)].flip(-1)


def morlet(orientation: float) -> np.ndarray:
    """A Morlet wavelet: complex (9, 9), of mean zero.

    A plane wave of 3/4 pi radians a pixel in a direction in radians, under a Gaussian of 0.8 pixels
    along the wave and twice that across. So much of it is taken off that the mean is zero.
    """
    sigma, frequency = 0.8, 0.75 * pi
    y, x = np.mgrid[-4:5, -4:5]
    along = x * np.cos(orientation) + y * np.sin(orientation)
    across = y * np.cos(orientation) - x * np.sin(orientation)
    envelope = np.exp(-(along**2 + (across / 2) ** 2) / (2 * sigma**2))
    wave = envelope * np.exp(1j * frequency * along)
    wave -= envelope * wave.sum() / envelope.sum()
    return wave / (4 * pi * sigma**2)


@cache
def _wavelets() -> Tensor:
    """Of all orientations, (16, 1, s, s), real parts before imaginary ones."""
    waves = np.stack([morlet(pi * k / ORIENTATIONS) for k in range(ORIENTATIONS)])
    return torch.as_tensor(np.concatenate([waves.real, waves.imag])[:, None], dtype=torch.float32)


def _moduli(images: Tensor) -> Tensor:
    """Images (n, 1, H, W) to the moduli (n, 8, H, W) of the wavelets."""
    bank = _wavelets().to(images.device)
    for dim in (-2, -1):
        # Over its ends a line goes on as its own mirror image, as often as it takes.
        places = np.pad(np.arange(images.shape[dim]), bank.shape[-1] // 2, mode="symmetric")
        images = images.index_select(dim, torch.as_tensor(places, device=images.device))
    real, imaginary = conv2d(images, bank).split(ORIENTATIONS, dim=1)
    return torch.hypot(real, imaginary)


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
    maps = softshrink(answers, settings.threshold).unflatten(2, (rows, columns))
    # What exceeds on either side is half of sum and difference: so each map is passed once.
    cells = (settings.cells, settings.cells)
    net, both = averaged(maps, cells), averaged(maps.abs_(), cells)
    return torch.cat([both + net, both - net], dim=1).relu_() / 2


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
        channels: those of the images that it takes: 1 of grey ones, 3 of colours.
        count: how many coefficients m an image of (C, H, W) has.
        answers: images (n, C, H, W) and what was fitted, to coefficients (n, m).
        fit: public images, float32 (n, C, H, W) in [0, 1], to what the map takes from them.
    """

    channels: tuple[int, ...]
    count: Callable[[Shape], int]
    answers: Callable[[Tensor, Fitted], Tensor]
    fit: Callable[[Tensor], Fitted] = lambda images: {}


def of_waves(settings: Mapping[int, WaveSettings]) -> FeatureMap:
    """Scattering paths, each standardised inside the record, over its channels and cells; of
    colours the opponent ones, averaged with the mirror image's. Settings are by channels."""

    def answers(images: Tensor, fitted: Fitted) -> Tensor:
        wave_settings = settings[images.shape[1]]
        if images.shape[1] == 1:
            # The root brings strong paths and weak ones closer.
            paths = scattering(images, wave_settings).clamp_min(0).sqrt()
        else:
            opponents = torch.einsum("oc,nchw->nohw", images.new_tensor(_OPPONENTS), images)
            paths = scattering(opponents, wave_settings)
            paths = (paths + of_mirror_images(paths)) / 2
        return standardised(paths.transpose(1, 2), dims=(2, 3, 4)).flatten(1)

    return FeatureMap(
        tuple(settings),
        lambda shape: shape[0] * N_PATHS * prod(settings[shape[0]].grid(shape)),
        answers,
    )


def of_patches(settings: Mapping[int, PatchSettings]) -> FeatureMap:
    """Roots of answers to whitened patches, standardised inside the record: of grey images over
    the cells of each filter; of colours, averaged with the mirror image's, over the filters.
    Settings are by channels."""

    def answers(images: Tensor, fitted: Fitted) -> Tensor:
        patch_settings = settings[images.shape[1]]
        maps = patch_answers(images, fitted, patch_settings)
        if images.shape[1] == 1:
            return standardised(maps.sqrt(), dims=(2, 3)).flatten(1)
        # Of photographs; writing has a side.
        mirrored = patch_answers(images.flip(-1), fitted, patch_settings)
        return standardised(((maps + mirrored) / 2).sqrt(), dims=(1,)).flatten(1)

    return FeatureMap(
        tuple(settings),
        lambda shape: 2 * settings[shape[0]].n_filters * settings[shape[0]].cells ** 2,
        answers,
        lambda images: fit_filters(images, settings[images.shape[1]]),
    )


def standardised(maps: Tensor, dims: tuple[int, ...], flat: float = 1e-5) -> Tensor:
    """Maps (n, ...) less their mean over some dimensions, divided by their deviation.

    An image's statistics of itself; no other image counts. What has no contrast becomes zero.

    Args:
        flat: number added to the variances.
    """
    centred = maps - maps.mean(dim=dims, keepdim=True)
    return centred / (centred.square().mean(dim=dims, keepdim=True) + flat).sqrt()


# Made-up sets have chosen these, no record: `python -m tools.choosing`.
WAVES = {1: WaveSettings(cells=7, spread=0.7), 3: WaveSettings(cells=4, spread=0.7)}
PATCHES = {
    1: PatchSettings(
        side=10, stride=1, padding=3, n_filters=160, ridge=0.3, threshold=0.25, cells=5
    ),
    3: PatchSettings(side=6, stride=2, padding=0, n_filters=400, ridge=0.1, threshold=1.0, cells=3),
}
_SCATTERING, _OF_PATCHES = of_waves(WAVES), of_patches(PATCHES)
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
