"""A data set's records as features: computed once, kept on the disk, the same for whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from numpy.lib.format import open_memmap

from m2fdp.config import FeaturesConfig
from m2fdp.data.dataset import Dataset, features
from m2fdp.data.features.maps import Shape
from m2fdp.data.features.projection import whitened
from m2fdp.data.features.public import public_images
from m2fdp.data.features.recipe import CHUNK, Fit, Recipe, recipe_of
from m2fdp.errors import InputError
from m2fdp.files import replacing

PIXELS = "pixels"


@dataclass(frozen=True)
class Computing:
    """How features are computed, none of which changes them.

    Attributes:
        device: as `Config.device`.
        workers: threads that share the images.
        on_chunk: called with how many images are done, of how many.
    """

    device: str = "cpu"
    workers: int = 1
    on_chunk: Callable[[int, int], None] = lambda done, total: None


def input_shape(config: FeaturesConfig, shape: Shape) -> Shape:
    """(C, H, W) of what models take, for images of some shape: (d, 1, 1) where it is features.

    Raises:
        InputError: see `m2fdp.data.features.recipe.recipe_of`.
    """
    return shape if config.map == PIXELS else (sum(recipe_of(config, shape).dimensions), 1, 1)


def fitted_on(config: FeaturesConfig) -> dict[str, str]:
    """All that features other than pixels are fitted on: its name and a digest or description.

    Raises:
        InputError: public images that can't be read.
    """
    return {} if config.map == PIXELS else public_images(config.public).sources


def map_records(
    dataset: Dataset, config: FeaturesConfig, computing: Computing | None = None
) -> Dataset:
    """The data set with features in the place of images: float32 (N, 1, 1, d).

    Their components are kept on the disk. Who comes first computes them, who comes meanwhile
    waits. A process that is killed leaves nothing that others would take for the whole.

    Raises:
        InputError: see `m2fdp.data.features.recipe.recipe_of` and
            `m2fdp.data.features.public.public_images`; or a folder that can't be written to.
    """
    if config.map == PIXELS:
        return dataset
    recipe, images = recipe_of(config, dataset.shape), np.ascontiguousarray(dataset.images)
    name = blake2b(recipe.key + f"{images.dtype}{images.shape}".encode(), digest_size=16)
    name.update(images.data)
    file = Path(config.folder) / f"{name.hexdigest()}.npy"
    try:
        fits = _fitted(file.parent, recipe)
        _compute(file, images, fits, computing or Computing())
    except OSError as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            "features.folder", config.folder, f"can't be written to ({reason})"
        ) from error
    mapped = np.load(file)
    for block, fit in zip(
        torch.from_numpy(mapped).split(recipe.dimensions, dim=1), fits, strict=True
    ):
        # All maps together have length one.
        whitened(block, fit.projection.variances, config.ridge).div_(len(fits) ** 0.5)
    return replace(dataset, images=mapped[:, None, None, :])


def _compute(file: Path, images: np.ndarray, fits: list[Fit], computing: Computing) -> None:
    """Write the components of the images, unless they are there."""
    with _alone(file):
        if file.is_file():
            return
        device = computing.device
        there = [fit.on(device) for fit in fits]

        def compute(mapped: np.ndarray, start: int) -> None:
            chunk = torch.as_tensor(features(images[start : start + CHUNK]), device=device)
            components = torch.cat([fit(chunk) for fit in there], dim=1)
            mapped[start : start + CHUNK] = components.cpu().numpy()

        with replacing(file) as unfinished:
            shape = (len(images), sum(len(fit.projection.variances) for fit in fits))
            mapped = open_memmap(unfinished, mode="w+", dtype=np.float32, shape=shape)
            # Every thread counts its own operators' threads.
            with ThreadPoolExecutor(
                computing.workers, initializer=torch.set_num_threads, initargs=(1,)
            ) as pool:
                starts = range(0, len(images), CHUNK)
                ends = (min(start + CHUNK, len(images)) for start in starts)
                for end, _ in zip(ends, pool.map(partial(compute, mapped), starts), strict=True):
                    computing.on_chunk(end, len(images))
            mapped.flush()


def _fitted(folder: Path, recipe: Recipe) -> list[Fit]:
    """What the recipe fits, of the disk if it has been fitted before."""
    file = folder / f"fit-{recipe.key.hex()}.pt"
    with _alone(file):
        if not file.is_file():
            states = [fit.state() for fit in recipe.fit()]
            with replacing(file) as unfinished:
                torch.save(states, unfinished)
    states = torch.load(file, weights_only=True)
    return [Fit.of_state(map_, state) for map_, state in zip(recipe.maps, states, strict=True)]


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Wait until no other process writes the file; what a killed one left of it goes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_suffix(".lock")):
        for unfinished in file.parent.glob(f".*.{file.name}"):
            unfinished.unlink(missing_ok=True)
        yield
