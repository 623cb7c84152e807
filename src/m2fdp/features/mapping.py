"""A data set's records as features: computed once, kept on the disk, the same for whoever asks."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from filelock import FileLock
from numpy.lib.format import header_data_from_array_1_0, read_array, write_array_header_1_0
from torch import Tensor

from m2fdp.core.config import PIXELS
from m2fdp.core.data.dataset import Dataset, features
from m2fdp.core.errors import InputError, one_line
from m2fdp.core.files import replacing, sealed, unsealed
from m2fdp.features.config import FeaturesConfig
from m2fdp.features.maps import Shape, sources_of
from m2fdp.features.projection import by_invariance, by_variance, whitened
from m2fdp.features.public import public_images
from m2fdp.features.recipe import Fit, Recipe, chunk_of, recipe_of

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Computing:
    """How features are computed, none of which changes them.

    Attributes:
        device: the run's, as `Config.device` has it.
        workers: threads that share the images.
        on_chunk: listener, called with how many images are done, of how many.
    """

    device: str = "cpu"
    workers: int = 1
    on_chunk: Callable[[int, int], None] = lambda done, total: None


def input_shape(config: FeaturesConfig, shape: Shape) -> Shape:
    """(C, H, W) of what models take, for images of some shape: (d, 1, 1) where it is features.

    Raises:
        InputError: see `m2fdp.features.recipe.recipe_of`.
    """
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
    dataset: Dataset, config: FeaturesConfig, computing: Computing | None = None
) -> Dataset:
    """The data set with features in the place of images: float32 (N, 1, 1, d).

    Their components are kept on the disk. Who comes first computes them, who comes meanwhile
    waits. A process that is killed leaves nothing that others would take for the whole.

    Raises:
        InputError: see `m2fdp.features.recipe.recipe_of` and
            `m2fdp.features.public.public_images`; or a folder that can't be written to.
    """
    if config.map == PIXELS:
        return dataset
    computing = computing or Computing()
    recipe, images = recipe_of(config, dataset.shape), np.ascontiguousarray(dataset.images)
    # Another kind of device rounds otherwise.
    kind = torch.device(computing.device).type
    name = blake2b(recipe.key + f"{kind}{images.dtype}{images.shape}".encode(), digest_size=16)
    name.update(images.data)
    folder = Path(os.path.expanduser(config.folder))
    try:
        fits = _fitted(folder, recipe)
        weights = _weights(folder, recipe, fits)
        file, chunk = folder / f"{name.hexdigest()}.npy", chunk_of(recipe.shape)
        mapped = _components(file, images, chunk, fits, computing)
    except OSError as error:
        problem = f"can't be written to ({one_line(error)})"
        raise InputError("features.folder", config.folder, problem) from error
    blocks = torch.from_numpy(mapped).split(recipe.dimensions, dim=1)
    for block, weighed in zip(blocks, weights, strict=True):
        # All maps together have length one.
        whitened(block, weighed).div_(len(fits) ** 0.5)
    return replace(dataset, images=mapped[:, None, None, :])


def _components(
    file: Path, images: np.ndarray, chunk: int, fits: list[Fit], computing: Computing
) -> np.ndarray:
    """The components of the images, `chunk` at a time: float32 (N, d), which the file keeps."""
    shape = (len(images), sum(len(fit.projection.variances) for fit in fits))

    def read() -> np.ndarray | None:
        try:
            with file.open("rb") as stream:
                stored: np.ndarray = read_array(stream, allow_pickle=False)
        except (FileNotFoundError, ValueError):  # or damaged
            return None
        return stored if stored.shape == shape and stored.dtype == np.float32 else None

    def make(unfinished: Path) -> np.ndarray:
        fits_on_device = [fit.on(computing.device) for fit in fits]

        def compute(start: int) -> np.ndarray:
            inputs = torch.as_tensor(features(images[start : start + chunk])).to(computing.device)
            return torch.cat([fit(inputs) for fit in fits_on_device], dim=1).cpu().numpy()

        mapped = np.empty(shape, dtype=np.float32)
        # Every thread counts its own operators' threads. The file is not mapped into memory: where
        # a disk is full, that ends the process without a word.
        with (
            unfinished.open("wb") as stream,
            ThreadPoolExecutor(
                computing.workers, initializer=torch.set_num_threads, initargs=(1,)
            ) as pool,
        ):
            write_array_header_1_0(stream, header_data_from_array_1_0(mapped))
            starts = range(0, len(images), chunk)
            for start, computed in zip(starts, pool.map(compute, starts), strict=True):
                end = start + len(computed)
                mapped[start:end] = computed
                stream.write(mapped[start:end].data)
                computing.on_chunk(end, len(images))
        return mapped

    return _kept(file, read, make)


def _fitted(folder: Path, recipe: Recipe) -> list[Fit]:
    """What the recipe fits, of the disk if it has been fitted before."""
    file = folder / f"fit-{recipe.key.hex()}.pt"
    states = _tensors(file, lambda: [fit.state() for fit in recipe.fit()])
    return [Fit.of_state(map_, state) for map_, state in zip(recipe.maps, states, strict=True)]


def _weights(folder: Path, recipe: Recipe, fits: list[Fit]) -> list[Tensor]:
    """What components of each map are weighed by, of the disk as far as it had to be fitted."""
    ridge, variances = recipe.config.ridge, [fit.projection.variances for fit in fits]
    if recipe.config.weights == "variance":
        return [by_variance(each, ridge) for each in variances]
    file = folder / f"moved-{recipe.key.hex()}.pt"
    moved = _tensors(file, lambda: recipe.fit_moved(fits))
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
        with _alone(file):
            content = read()  # of whom this process has waited for
            if content is None:
                with replacing(file) as unfinished:
                    content = make(unfinished)
    return content


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Wait until no other process writes the file; what a killed one left of it goes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_suffix(".lock")):
        for unfinished in file.parent.glob(f".*.{file.name}"):
            unfinished.unlink(missing_ok=True)
        yield
