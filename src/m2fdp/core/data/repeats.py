"""Records of a split that are equal to others, pixel by pixel."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b

import pandas as pd

from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.sources import N_CLASSES
from m2fdp.core.errors import InputError


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
