"""A run on features in the place of pixels."""

from collections.abc import Callable, Iterator
from hashlib import blake2b

import numpy as np

from m2fdp.core.config import PIXELS
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.engine.execution import available_cores
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.models.checks import Shape
from m2fdp.core.privacy.summary import Promised
from m2fdp.features.public import GENERATED
from m2fdp.features.recipe import fitted_on, input_shape, map_records
from m2fdp.sources.arrays import read_images

_AT_A_TIME = 1_000
# Where grey levels k/m of images with m levels are cut into 256: never close to one of them.
_OFFSET = 0.6180339887


def refuse_records(public: str, dataset: Dataset) -> None:
    """Refuse a file of public images that has an image of the data set, training or test.

    Images are compared as `looks` tells them. Generated ones are made of no record.

    Raises:
        InputError: it has; or a file of no images.
    """
    if public in GENERATED:
        return
    images = read_images("features.public", public, "x")
    if images.shape[1:] != dataset.images.shape[1:]:
        return  # nothing can be fitted on these, which is told in its place
    public_looks = set(looks(images)) - {None}
    shared = [number for number, look in enumerate(looks(dataset.images)) if look in public_looks]
    if shared:
        raise InputError(
            "features.public",
            public,
            f"holds {len(shared)} of the {len(dataset.images)} records of {dataset.name}, such as "
            f"sample {shared[0]}: features fitted on records are a release that no ε covers; "
            "valid: images that are nobody's records",
        )


def looks(images: np.ndarray) -> Iterator[bytes | None]:
    """A digest of what each image (N, H, W, C) of any numbers shows: equal images have one, as
    integers or floats, whatever they are scaled or brightened by. None for those of one colour,
    which tell of nobody."""
    for start in range(0, len(images), _AT_A_TIME):
        rows = images[start : start + _AT_A_TIME].reshape(-1, images[0].size).astype(np.float64)
        rows -= rows.min(axis=1, keepdims=True)
        contrasts = rows.max(axis=1, keepdims=True)
        rows *= 255 / np.where(contrasts > 0, contrasts, 1)
        levels = (rows + _OFFSET).astype(np.uint8)
        for row, contrast in zip(levels, contrasts[:, 0], strict=True):
            yield blake2b(row.data, digest_size=16).digest() if contrast > 0 else None


def promised(assembly: Assembly) -> Promised:
    """That the features' sources are public; nothing where there are none."""
    sources = fitted_on(assembly.config.features)
    if not sources:
        return Promised()
    named = ", ".join(sources)
    sentence = f"what the features were fitted on ({named}) is public: no device's record is in it"
    return Promised((sentence,), {"features_fitted_on": sources})


class Mapped(PlainExperiment):
    """A run whose models may take features (`features`)."""

    @property
    def input_shape(self) -> Shape:
        return input_shape(self.config.features, self.dataset.shape)

    def inputs_of(
        self, dataset: Dataset, on_chunk: Callable[[int, int], None] = lambda done, total: None
    ) -> Dataset:
        config, workers = self.config, available_cores(self.config.threads)
        plain = super().inputs_of(dataset)
        return map_records(plain, config.features, config.device, workers, on_chunk)

    def check_split(self, sizes: np.ndarray) -> None:
        """Also refuse public images that are records."""
        if self.config.features.map != PIXELS:
            refuse_records(self.config.features.public, self.dataset)
        super().check_split(sizes)
