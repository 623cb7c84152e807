"""The split as one table: which record goes where; never copied pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2fdp.config import PartitionConfig
from m2fdp.data.dataset import Dataset
from m2fdp.data.partitioners import partition, stratified_position
from m2fdp.errors import InputError
from m2fdp.streams import generator

COLUMNS = ["dataset", "sample", "split", "label", "device"]
SPLITS = ["train", "validation", "test"]
CLOUD = -1


def make_manifest(
    dataset: Dataset, config: PartitionConfig, edge_of_device: np.ndarray, seed: int
) -> pd.DataFrame:
    """Deal the training records to the devices; validation and test records stay with the cloud.

    Args:
        edge_of_device: (n_devices,), the edge server above each device.

    Returns:
        One row a record that is used, with the columns `dataset, sample, split, label, device`;
        device is -1 for the cloud. Sorted by split (train, validation, test), device, sample.

    Raises:
        InputError: if the records can't be dealt as asked.
    """
    training_labels = dataset.labels[: dataset.n_train]
    is_validation = _validation_mask(training_labels, config.validation_fraction, seed)
    training = np.flatnonzero(~is_validation)
    device = partition(training_labels[training], dataset.n_classes, config, edge_of_device, seed)
    training, device = training[device >= 0], device[device >= 0]
    by_device = np.argsort(device, kind="stable")
    parts = [
        training[by_device],
        np.flatnonzero(is_validation),
        np.arange(dataset.n_train, len(dataset.labels)),
    ]
    sample = np.concatenate(parts)
    return pd.DataFrame(
        {
            "dataset": dataset.name,
            "sample": sample,
            "split": np.repeat(SPLITS, [len(part) for part in parts]),
            "label": dataset.labels[sample],
            "device": np.concatenate(
                [device[by_device], np.full(len(sample) - len(device), CLOUD, dtype=np.int64)]
            ),
        },
        columns=COLUMNS,
    )


def _validation_mask(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """A random share of the training records with the label mix of all of them."""
    wanted = round(fraction * len(labels))
    if fraction > 0 and wanted == 0:
        raise InputError(
            "partition.validation_fraction",
            fraction,
            f"no record of {len(labels)}; valid: 0, or at least {1 / len(labels):.2g}",
        )
    rng = generator(seed, "partition-validation")
    return stratified_position(np.zeros_like(labels), labels, rng) < wanted


@dataclass(frozen=True, eq=False)
class Shards:
    """The training records of every device, in one array.

    Attributes:
        samples: (n,) int64, the records of device 0, then those of device 1, …
        offsets: (n_devices + 1,) int64; device j holds samples[offsets[j]:offsets[j + 1]].
    """

    samples: np.ndarray
    offsets: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """(n_devices,) int64, D_j."""
        return np.diff(self.offsets)


def shards_of(manifest: pd.DataFrame) -> Shards:
    """The training records of the manifest, by device."""
    train = manifest[manifest["split"] == "train"].sort_values(["device", "sample"])
    sizes = np.bincount(train["device"].to_numpy())
    return Shards(
        samples=train["sample"].to_numpy(dtype=np.int64),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
    )


def held_by_cloud(manifest: pd.DataFrame, split: str) -> np.ndarray:
    """(n,) int64: the records of a split that the cloud holds (`validation` or `test`)."""
    held = (manifest["split"] == split) & (manifest["device"] == CLOUD)
    return manifest.loc[held, "sample"].to_numpy(dtype=np.int64)


def label_counts(manifest: pd.DataFrame) -> pd.DataFrame:
    """Training records of each device (index) by label (one column each).

    A simulation diagnostic: in a deployment these un-noised counts would be a release.
    """
    train = manifest[manifest["split"] == "train"]
    return pd.crosstab(train["device"], train["label"]).reindex(
        columns=pd.RangeIndex(manifest["label"].max() + 1, name="label"), fill_value=0
    )
