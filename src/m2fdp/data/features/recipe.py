"""What the features of a data set's images are: which map, how many of them, fitted on what."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from hashlib import blake2b
from pathlib import Path

import torch
from torch import Tensor

from m2fdp.config import FeaturesConfig
from m2fdp.data.features.maps import MAPS, FeatureMap, Fitted, Shape
from m2fdp.data.features.projection import Projection, fit_projection
from m2fdp.data.features.public import public_images
from m2fdp.errors import InputError

# Images that are mapped at a time: what is computed of them stays in the processor's cache. No
# result depends on who takes which.
CHUNK = 25
_N_PUBLIC = 8_000
_CHANNELS = (1, 3)
_SMALLEST_SIDE, _LARGEST_SIDE = 8, 128
_USUAL_DIMENSION = 600


@dataclass(frozen=True, eq=False)
class Features:
    """A map and a projection, both fitted on public images."""

    map: FeatureMap
    fitted: Fitted
    projection: Projection

    def __call__(self, images: Tensor) -> Tensor:
        """Images (n, C, H, W) in [0, 1] to components (n, d), which are to be whitened."""
        return self.projection(self.map(images, self.fitted))

    def state(self) -> dict[str, Tensor]:
        """All that was fitted, by name; see `of_state`."""
        return {**vars(self.projection), **self.fitted}

    def on(self, device: str) -> Features:
        """The same on a device."""
        state = {name: value.to(device) for name, value in self.state().items()}
        return self.of_state(self.map, state)

    @classmethod
    def of_state(cls, map_: FeatureMap, state: Fitted) -> Features:
        """From what `state` has given."""
        projection = {field.name: state[field.name] for field in fields(Projection)}
        fitted = {name: value for name, value in state.items() if name not in projection}
        return cls(map_, fitted, Projection(**projection))


@dataclass(frozen=True)
class Recipe:
    """How images of some shape become features.

    Attributes:
        shape: (C, H, W).
        dimension: d.
    """

    config: FeaturesConfig
    shape: Shape
    dimension: int

    @property
    def map(self) -> FeatureMap:
        """The configured one."""
        return MAPS[self.config.map]

    @property
    def key(self) -> bytes:
        """A digest of all that components depend on, this code among it."""
        text = json.dumps(
            {
                "map": self.config.map,
                "dimension": self.dimension,
                "public": public_images(self.config.public).sources,
                "shape": self.shape,
            }
        )
        return blake2b(text.encode() + _code(), digest_size=16).digest()

    def fit(self) -> Features:
        """The map and the projection, by public images and nothing else.

        Raises:
            InputError: too few public images, or of another size.
        """
        drawn = public_images(self.config.public).draw(_N_PUBLIC, self.shape)
        if len(drawn) <= self.dimension:
            raise InputError(
                "features.public",
                self.config.public,
                f"has {len(drawn)} images, too few to fit {self.dimension} features on; valid: "
                "more images than features.dimension",
            )
        images = torch.as_tensor(drawn)
        fitted = self.map.fit(images)
        coefficients = torch.cat([self.map(chunk, fitted) for chunk in images.split(CHUNK)])
        projection = fit_projection(coefficients, self.dimension)
        return Features(self.map, fitted, projection)


def recipe_of(config: FeaturesConfig, shape: Shape) -> Recipe:
    """The recipe for images of a shape.

    Raises:
        InputError: images that the map can't take, or more features than there are coefficients.
    """
    channels, *sides = shape
    size = f"{sides[0]} x {sides[1]}"
    if channels not in _CHANNELS:
        valid = f"takes images of 1 or 3 channels; these have {channels}"
        raise InputError("features.map", config.map, valid)
    if min(sides) < _SMALLEST_SIDE or max(sides) > _LARGEST_SIDE:
        raise InputError(
            "features.map",
            config.map,
            f"takes images of {_SMALLEST_SIDE} to {_LARGEST_SIDE} pixels a side; these have {size}",
        )
    count = MAPS[config.map].count(shape)
    if config.dimension is None:
        return Recipe(config, shape, min(_USUAL_DIMENSION, count))
    if config.dimension > count:
        raise InputError(
            "features.dimension",
            config.dimension,
            f"is more than the coefficients of {size} images; valid: 1 to {count}, or null",
        )
    return Recipe(config, shape, config.dimension)


@cache
def _code() -> bytes:
    """The modules that compute features: what others have computed is not theirs."""
    return b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
