"""Whether images are somebody's records besides: those that are said to be public, or held out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pandas as pd

from m2fdp.core.data.arrays import read_images
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.sources import N_CLASSES
from m2fdp.core.errors import InputError
from m2fdp.features.public import GENERATED

_AT_A_TIME = 1_000
# Where grey levels k/m of images with m levels are cut into 256: never close to one of them.
_OFFSET = 0.6180339887


@dataclass(frozen=True)
class Repeats:
    """How many records of a split are equal to others, pixel by pixel.

    Attributes:
        held_out: records that are held out and trained on as well.
        n_held_out: all that are held out.
        on_devices: training records that another device holds too.
    """

    held_out: int = 0
    n_held_out: int = 0
    on_devices: int = 0


def count_repeats(dataset: Dataset, manifest: pd.DataFrame) -> Repeats:
    """The repeats of a split; none where most training records are like others anyway, nor in
    published data sets, which are as they are.

    Args:
        manifest: who holds which record, as `check_manifest` returns it.

    Raises:
        InputError: every record that is held out is trained on too.
    """
    if dataset.name in (*N_CLASSES, "synthetic"):
        return Repeats()

    def digests(rows: pd.DataFrame) -> list[bytes]:
        images = (dataset.images[sample] for sample in rows["sample"])
        return [blake2b(image.tobytes(), digest_size=16).digest() for image in images]

    is_training = manifest["split"] == "train"
    trained = digests(manifest[is_training])
    times = Counter(trained)
    if 2 * sum(count == 1 for count in times.values()) < len(trained):
        return Repeats()
    holders: dict[bytes, set[int]] = {}
    for digest, device in zip(trained, manifest.loc[is_training, "device"], strict=True):
        holders.setdefault(digest, set()).add(device)
    others = digests(manifest[~is_training])
    seen = sum(digest in times for digest in others)
    if others and seen == len(others):
        raise InputError(
            "dataset.name",
            dataset.name,
            f"has {seen} records to test on, each of which is trained on as well: accuracy would "
            "be that of a memory; valid: test records that are no training records",
        )
    on_devices = sum(times[digest] for digest, devices in holders.items() if len(devices) > 1)
    return Repeats(seen, len(others), on_devices)


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
