"""What the features of a data set's images are: which map, how many of them, fitted on what."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from m2fdp.core.config import PIXELS
from m2fdp.core.data.dataset import Dataset, features
from m2fdp.core.errors import InputError, one_line
from m2fdp.core.files import replacing, sealed, unsealed
from m2fdp.core.formatting import counted
from m2fdp.core.models.checks import Shape
from m2fdp.features.config import FeaturesConfig
from m2fdp.features.drawings import deformed
from m2fdp.features.maps import MAPS, FeatureMap, Fitted, sources_of
from m2fdp.features.projection import (
    by_invariance,
    by_variance,
    fit_projection,
    moved_by,
    whitened,
)
from m2fdp.features.public import PublicImages, public_images

# Pixels a channel that are mapped at a time: they stay in the processor's cache, and fit into the
# memory once for each thread. No result depends on who takes which.
_PIXELS_AT_A_TIME = 25 * 32**2
_MOST_AT_A_TIME = 25
N_PUBLIC = 8_000
# Of public images one in so many is deformed.
_DEFORMED_EVERY = 2
# Of deformations; they are of public images only.
_SEED = 20_117
_SMALLEST_SIDE, _LARGEST_SIDE = 8, 128
_USUAL_DIMENSION = 600
# Along the first axis; of coefficients whose variance inside an image is one.
_LEAST_VARIANCE = 1e-6
_LIBRARIES = ("numpy", "scikit-learn", "torch")


@dataclass(frozen=True, eq=False)
class Fit:
    """One map with what public images have given it and its projection (`fit_projection`)."""

    map: FeatureMap
    state: Fitted

    def __call__(self, images: Tensor) -> Tensor:
        """Images (n, C, H, W) in [0, 1] to components (n, d), which are to be whitened."""
        return (self.map.answers(images, self.state) - self.state["mean"]) @ self.state["axes"]

    def on(self, device: str) -> Fit:
        """The same on a device."""
        return Fit(self.map, {name: value.to(device) for name, value in self.state.items()})


@dataclass(frozen=True)
class Recipe:
    """How images of some shape become features.

    Attributes:
        shape: (C, H, W).
        dimensions: how many features each map gives; d in all.
    """

    config: FeaturesConfig
    shape: Shape
    dimensions: tuple[int, ...]

    @property
    def maps(self) -> tuple[FeatureMap, ...]:
        """The configured ones."""
        return MAPS[self.config.map]

    @cached_property
    def public(self) -> PublicImages:
        """What the maps are fitted on, read once: what is in a file may change.

        Raises:
            InputError: public images that can't be read.
        """
        return public_images(self.config.public)

    @cached_property
    def key(self) -> bytes:
        """A digest of all that components depend on, with this code and libraries that round."""
        sources = self.public.sources | sources_of(self.config.map)
        libraries = [version(library) for library in _LIBRARIES]
        text = json.dumps([self.config.map, self.dimensions, sources, self.shape, libraries])
        return blake2b(text.encode() + _code(), digest_size=16).digest()

    def fit(self) -> list[Fit]:
        """The maps and their projections, by public images and nothing else.

        Raises:
            InputError: too few public images, of another size, or hardly different.
        """
        images = self._draw()
        pairs = zip(self.maps, self.dimensions, strict=True)
        fits = [fitted_map(map_, images, dimension) for map_, dimension in pairs]
        if min(fit.state["variances"][0] for fit in fits) < _LEAST_VARIANCE:
            problem = "has images that hardly differ, too little to fit features on"
            valid = "valid: images of many things"
            raise InputError("features.public", self.config.public, f"{problem}; {valid}")
        return fits

    def fit_moved(self, fits: list[Fit]) -> list[Tensor]:
        """How small deformations of public images move the components of each map: (d, d) each."""
        images = self._draw()[::_DEFORMED_EVERY]
        pairs = torch.stack([images, deformed(images, np.random.default_rng(_SEED))], dim=1)
        chunks = pairs.split(chunk_of(self.shape))
        return [
            moved_by(torch.cat([fit(chunk[:, 0]) - fit(chunk[:, 1]) for chunk in chunks]))
            for fit in fits
        ]

    def _draw(self) -> Tensor:
        drawn, most = self.public.draw(N_PUBLIC, self.shape), max(self.dimensions)
        if len(drawn) <= most:
            problem = f"has {counted(len(drawn), 'image')}, too few to fit {most} features of a map"
            valid = "on; valid: more images than features"
            raise InputError("features.public", self.config.public, f"{problem} {valid}")
        return torch.as_tensor(drawn)


def fitted_map(map_: FeatureMap, images: Tensor, dimension: int) -> Fit:
    """A map and d axes of its own, fitted on public images, float32 (n, C, H, W) in [0, 1]."""
    n, *sides = images.shape
    shape, state = (sides[0], sides[1], sides[2]), map_.fit(images)
    size, coefficients = chunk_of(shape), torch.empty(n, map_.count(shape))
    for rows, chunk in zip(coefficients.split(size), images.split(size), strict=True):
        rows.copy_(map_.answers(chunk, state))
    return Fit(map_, {**state, **fit_projection(coefficients, dimension)})


def recipe_of(config: FeaturesConfig, shape: Shape) -> Recipe:
    """The recipe for images of a shape.

    Raises:
        InputError: images that the map can't take, or more features than there are coefficients.
    """
    channels, *sides = shape
    size, maps = f"{sides[0]} x {sides[1]}", MAPS[config.map]
    taken = sorted(set.intersection(*(set(map_.channels) for map_ in maps)))
    if channels not in taken:
        words = " or ".join([*map(str, taken[:-1]), counted(taken[-1], "channel")])
        valid = f"takes images of {words}; these have {channels}"
        raise InputError("features.map", config.map, valid)
    if min(sides) < _SMALLEST_SIDE or max(sides) > _LARGEST_SIDE:
        valid = f"takes images of {_SMALLEST_SIDE} to {_LARGEST_SIDE} pixels a side"
        raise InputError("features.map", config.map, f"{valid}; these have {size}")
    counts = [map_.count(shape) for map_ in maps]
    if config.dimension is None:
        return Recipe(config, shape, tuple(min(_USUAL_DIMENSION, count) for count in counts))
    fewest, limit = len(maps), len(maps) * min(counts)
    if not fewest <= config.dimension <= limit:
        problem = f"can't be had of {size} images by features.map: {config.map}"
        valid = f"valid: {fewest} to {limit}, or null"
        raise InputError("features.dimension", config.dimension, f"{problem}; {valid}")
    parts = np.diff(np.arange(len(maps) + 1) * config.dimension // len(maps)).tolist()
    return Recipe(config, shape, tuple(parts))


def chunk_of(shape: Shape) -> int:
    """How many images of (C, H, W) are mapped at a time."""
    return min(max(1, _PIXELS_AT_A_TIME // (shape[1] * shape[2])), _MOST_AT_A_TIME)


@cache
def _code() -> bytes:
    """The modules that compute features: what others have computed is not theirs."""
    return b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))


Kept = TypeVar("Kept")
# Called with how many images are done, of how many.
OnChunk = Callable[[int, int], None]


def input_shape(config: FeaturesConfig, shape: Shape) -> Shape:
    """(C, H, W) of what models take, for images of some shape: (d, 1, 1) where it is features."""
    return shape if config.map == PIXELS else (sum(recipe_of(config, shape).dimensions), 1, 1)


def fitted_on(config: FeaturesConfig) -> dict[str, str]:
    """All that features other than pixels are fitted on: its name and a digest or description.

    Raises:
        InputError: public images that can't be read.
    """
    if config.map == PIXELS:
        return {}
    return public_images(config.public).sources | sources_of(config.map)


def map_records(
    dataset: Dataset,
    config: FeaturesConfig,
    device: str = "cpu",
    workers: int = 1,
    on_chunk: OnChunk = lambda done, total: None,
) -> Dataset:
    """The data set with features in the place of images: float32 (N, 1, 1, d).

    Their components are kept on the disk. Who comes first computes them, who comes meanwhile
    waits. A process that is killed leaves nothing that others would take for the whole.
    """
    if config.map == PIXELS:
        return dataset
    recipe, images = recipe_of(config, dataset.shape), np.ascontiguousarray(dataset.images)
    # Another kind of device rounds otherwise.
    kind = torch.device(device).type
    name = blake2b(recipe.key + f"{kind}{images.dtype}{images.shape}".encode(), digest_size=16)
    name.update(images.data)
    folder = Path(os.path.expanduser(config.folder))
    try:
        fits = _fitted(folder, recipe)
        weights = _weights(folder, recipe, fits)
        file, chunk = folder / f"{name.hexdigest()}.npy", chunk_of(recipe.shape)
        mapped = _components(file, images, chunk, fits, (device, workers, on_chunk))
    except OSError as error:
        problem = f"can't be written to ({one_line(error)})"
        raise InputError("features.folder", config.folder, problem) from error
    _weigh(torch.from_numpy(mapped), recipe, weights)
    return replace(dataset, images=mapped[:, None, None, :])


def map_images(images: Tensor, config: FeaturesConfig) -> Tensor:
    """Images (n, C, H, W) in [0, 1] to features (n, d, 1, 1), of which the disk keeps nothing."""
    _, channels, height, width = images.shape
    recipe, folder = recipe_of(config, (channels, height, width)), Path(config.folder).expanduser()
    fits = _fitted(folder, recipe)
    chunks = images.split(chunk_of(recipe.shape))
    mapped = torch.cat([torch.cat([fit(each) for fit in fits], dim=1) for each in chunks])
    _weigh(mapped, recipe, _weights(folder, recipe, fits))
    return mapped[:, :, None, None]


def _weigh(components: Tensor, recipe: Recipe, weights: list[Tensor]) -> None:
    """Make features of components (n, d), in place."""
    blocks = components.split(recipe.dimensions, dim=1)
    for block, weighed in zip(blocks, weights, strict=True):
        # All maps together have length one.
        whitened(block, weighed).div_(len(weights) ** 0.5)


def _components(
    file: Path, images: np.ndarray, chunk: int, fits: list[Fit], computing: tuple[str, int, OnChunk]
) -> np.ndarray:
    """The components of the images, `chunk` at a time: float32 (N, d), which the file keeps."""
    device, workers, on_chunk = computing
    shape = (len(images), sum(len(fit.state["variances"]) for fit in fits))

    def read() -> np.ndarray | None:
        try:
            stored: np.ndarray = np.load(file, allow_pickle=False)
        except (FileNotFoundError, ValueError, EOFError, BadZipFile):  # or damaged
            return None
        return stored if stored.shape == shape and stored.dtype == np.float32 else None

    def make(unfinished: Path) -> np.ndarray:
        fits_on_device, starts = [fit.on(device) for fit in fits], range(0, len(images), chunk)

        def compute(start: int) -> np.ndarray:
            inputs = torch.as_tensor(features(images[start : start + chunk])).to(device)
            return torch.cat([fit(inputs) for fit in fits_on_device], dim=1).cpu().numpy()

        mapped = np.empty(shape, dtype=np.float32)
        # Every thread counts its own operators' threads. The file is not mapped into memory: where
        # a disk is full, that ends the process without a word.
        with (
            unfinished.open("wb") as stream,
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            for start, computed in zip(starts, pool.map(compute, starts), strict=True):
                end = start + len(computed)
                mapped[start:end] = computed
                on_chunk(end, len(images))
            np.save(stream, mapped)
        return mapped

    return _kept(file, read, make)


def _fitted(folder: Path, recipe: Recipe) -> list[Fit]:
    """What the recipe fits, of the disk if it has been fitted before."""
    file = folder / f"fit-{recipe.key.hex()}.pt"
    states = _tensors(file, lambda: [fit.state for fit in recipe.fit()])
    return [Fit(*each) for each in zip(recipe.maps, states, strict=True)]


def _weights(folder: Path, recipe: Recipe, fits: list[Fit]) -> list[Tensor]:
    """What components of each map are weighed by, of the disk as far as it had to be fitted."""
    ridge, variances = recipe.config.ridge, [fit.state["variances"] for fit in fits]
    if recipe.config.weights == "variance":
        return [by_variance(each, ridge) for each in variances]
    moved = _tensors(folder / f"moved-{recipe.key.hex()}.pt", lambda: recipe.fit_moved(fits))
    pairs = zip(variances, moved, strict=True)
    return [by_invariance(each, ridge, moments) for each, moments in pairs]


def _tensors(file: Path, compute: Callable[[], list[Any]]) -> list[Any]:
    """Tensors, or mappings to tensors, that a file keeps."""

    def read() -> bytes | None:
        return unsealed(file.read_bytes()) if file.is_file() else None

    def make(unfinished: Path) -> bytes:
        buffer = io.BytesIO()
        torch.save(compute(), buffer)
        content = buffer.getvalue()
        unfinished.write_bytes(sealed(content))
        return content

    return list(torch.load(io.BytesIO(_kept(file, read, make)), weights_only=True))


def _kept(file: Path, read: Callable[[], Kept | None], make: Callable[[Path], Kept]) -> Kept:
    """What a file keeps; made, written and returned if it is not there or damaged.

    What is there is read without a lock, so from a folder too that can't be written to.
    """
    content = read()
    if content is None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            for unfinished in file.parent.glob(f".*.{file.name}"):
                unfinished.unlink(missing_ok=True)  # of a process that was killed
            content = read()  # of whom this process has waited for
            if content is None:
                with replacing(file) as unfinished:
                    content = make(unfinished)
    return content
