"""What the features of a data set's images are: which map, how many of them, fitted on what."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache, cached_property
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.errors import InputError
from m2fdp.core.formatting import counted
from m2fdp.features.config import FeaturesConfig
from m2fdp.features.deformations import deformed
from m2fdp.features.maps import MAPS, FeatureMap, Fitted, Shape, sources_of
from m2fdp.features.projection import Projection, fit_projection, moved_by
from m2fdp.features.public import PublicImages, public_images

# Pixels a channel that are mapped at a time: what is computed of them stays in the processor's
# cache, and fits into the memory once for each thread. No result depends on who takes which.
_PIXELS_AT_A_TIME = 25 * 32**2
_MOST_AT_A_TIME = 25
_N_PUBLIC = 8_000
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
    """One map with its projection, both fitted on public images."""

    map: FeatureMap
    fitted: Fitted
    projection: Projection

    def __call__(self, images: Tensor) -> Tensor:
        """Images (n, C, H, W) in [0, 1] to components (n, d), which are to be whitened."""
        return self.projection(self.map(images, self.fitted))

    def state(self) -> dict[str, Tensor]:
        """All that was fitted, by name; see `of_state`."""
        return {**vars(self.projection), **self.fitted}

    def on(self, device: str) -> Fit:
        """The same on a device."""
        state = {name: value.to(device) for name, value in self.state().items()}
        return self.of_state(self.map, state)

    @classmethod
    def of_state(cls, map_: FeatureMap, state: Fitted) -> Fit:
        """From what `state` has given."""
        projection = {field.name: state[field.name] for field in fields(Projection)}
        fitted = {name: value for name, value in state.items() if name not in projection}
        return cls(map_, fitted, Projection(**projection))


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
        """A digest of all that components depend on, this code among it and the libraries that
        round."""
        text = json.dumps(
            {
                "map": self.config.map,
                "dimensions": self.dimensions,
                "sources": self.public.sources | sources_of(self.config.map),
                "shape": self.shape,
                "libraries": [version(library) for library in _LIBRARIES],
            }
        )
        return blake2b(text.encode() + _code(), digest_size=16).digest()

    def fit(self) -> list[Fit]:
        """The maps and their projections, by public images and nothing else.

        Raises:
            InputError: too few public images, of another size, or hardly different.
        """
        images, fits = self._draw(), []
        chunks = images.split(chunk_of(self.shape))
        for map_, dimension in zip(self.maps, self.dimensions, strict=True):
            fitted = map_.fit(images)
            coefficients = torch.empty(len(images), map_.count(self.shape))
            for rows, chunk in zip(coefficients.split(chunk_of(self.shape)), chunks, strict=True):
                rows.copy_(map_(chunk, fitted))
            projection = fit_projection(coefficients, dimension)
            if projection.variances[0] < _LEAST_VARIANCE:
                raise InputError(
                    "features.public",
                    self.config.public,
                    "has images that hardly differ, too little to fit features on; valid: images "
                    "of many things",
                )
            fits.append(Fit(map_, fitted, projection))
        return fits

    def fit_moved(self, fits: list[Fit]) -> list[Tensor]:
        """How small deformations of public images move the components of each map: (d, d) each.

        Raises:
            InputError: as for `fit`.
        """
        images = self._draw()[::_DEFORMED_EVERY]
        pairs = torch.stack([images, deformed(images, np.random.default_rng(_SEED))], dim=1)
        chunks = pairs.split(chunk_of(self.shape))
        return [
            moved_by(torch.cat([fit(chunk[:, 0]) - fit(chunk[:, 1]) for chunk in chunks]))
            for fit in fits
        ]

    def _draw(self) -> Tensor:
        drawn = self.public.draw(_N_PUBLIC, self.shape)
        if len(drawn) <= max(self.dimensions):
            raise InputError(
                "features.public",
                self.config.public,
                f"has {counted(len(drawn), 'image')}, too few to fit {max(self.dimensions)} "
                "features of a map on; valid: more images than features",
            )
        return torch.as_tensor(drawn)


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
        raise InputError(
            "features.dimension",
            config.dimension,
            f"can't be had of {size} images by features.map: {config.map}; valid: {fewest} to "
            f"{limit}, or null",
        )
    parts = np.diff(np.arange(len(maps) + 1) * config.dimension // len(maps)).tolist()
    return Recipe(config, shape, tuple(parts))


def chunk_of(shape: Shape) -> int:
    """How many images of (C, H, W) are mapped at a time."""
    return min(max(1, _PIXELS_AT_A_TIME // (shape[1] * shape[2])), _MOST_AT_A_TIME)


@cache
def _code() -> bytes:
    """The modules that compute features: what others have computed is not theirs."""
    return b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
