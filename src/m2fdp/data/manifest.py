"""The split as one table: which record goes where; never copied pixels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from m2fdp.config import PartitionConfig
from m2fdp.data.dataset import Dataset
from m2fdp.data.partitioners import partition, stratified_position
from m2fdp.errors import InputError
from m2fdp.formatting import counted
from m2fdp.streams import generator

COLUMNS = ["dataset", "sample", "split", "label", "device"]
SPLITS = ["train", "validation", "test"]
CLOUD = -1
FILE = "file"  # of a table's `attrs`: where it was read from
DIGEST = "sha256"  # of a table's `attrs`: of the file that it was read from


def make_manifest(
    dataset: Dataset, config: PartitionConfig, edges: np.ndarray, seed: int
) -> pd.DataFrame:
    """Deal the training records to the devices; validation and test records stay with the cloud,
    unless devices keep validation records of their own (`partition.held_out_by`).

    Args:
        edges: (n_devices,), the edge server above each device.

    Returns:
        One row a record that is used, with the columns `dataset, sample, split, label, device`;
        device is -1 for the cloud. Sorted by split (train, validation, test), device, sample.

    Raises:
        InputError: if the records can't be dealt as asked.
    """
    training_labels, by_devices = dataset.labels[: dataset.n_train], config.held_out_by == "devices"
    is_validation = _validation_mask(training_labels, config.validation_fraction, seed)
    # What devices hold out of their own is dealt with all else.
    training = np.arange(dataset.n_train) if by_devices else np.flatnonzero(~is_validation)
    device = partition(training_labels[training], dataset.n_classes, config, edges, seed)
    training, device = training[device >= 0], device[device >= 0]
    holder = np.full(len(dataset.labels), CLOUD, dtype=np.int64)
    holder[training] = device
    held_out = np.flatnonzero(is_validation)
    if by_devices:
        held_out = held_out[holder[held_out] >= 0]
        training = training[~is_validation[training]]
    parts = [
        *(each[np.argsort(holder[each], kind="stable")] for each in (training, held_out)),
        np.arange(dataset.n_train, len(dataset.labels)),
    ]
    sample = np.concatenate(parts)
    return pd.DataFrame(
        {
            "dataset": dataset.name,
            "sample": sample,
            "split": np.repeat(SPLITS, [len(part) for part in parts]),
            "label": dataset.labels[sample],
            "device": holder[sample],
        },
        columns=COLUMNS,
    )


def check_manifest(
    manifest: pd.DataFrame, dataset: Dataset, n_devices: int, held_out_by: str = "cloud"
) -> None:
    """That a split, which may be the user's own, is one of this data set for these devices.

    What else every manifest must obey, whatever its data set, is checked when it is loaded.

    Args:
        held_out_by: who keeps validation records, as `PartitionConfig` has it.

    Raises:
        InputError: another data set, records or labels that it does not have, one record twice,
            another number of devices, or validation records that others hold; it names the
            manifest's file.
    """
    refuse = partial(InputError, file_of(manifest))
    name = manifest["dataset"].iloc[0]
    if name != dataset.name:
        raise refuse(name, f"is not the data set of this run; dataset.name: {name}")
    sample, label = manifest["sample"].to_numpy(), manifest["label"].to_numpy()
    strange = sample[(sample < 0) | (sample >= len(dataset.labels))]
    if len(strange):
        valid = f"{name} has 0 to {len(dataset.labels) - 1}"
        raise refuse(int(strange[0]), f"is no sample; {valid}")
    twice = manifest[manifest["sample"].duplicated(keep=False)]
    if len(twice):
        repeated = int(twice["sample"].iloc[0])
        rows = twice.loc[twice["sample"] == repeated, ["split", "device"]].itertuples(index=False)
        holders = ", ".join(
            f"device {device}" if device != CLOUD else f"the cloud ({split})"
            for split, device in rows
        )
        raise refuse(
            f"sample {repeated}",
            f"is dealt to {holders}: whoever's it is moves what is released twice, and is "
            f"protected once; valid: every sample once; {twice['sample'].nunique()} are dealt more "
            "often",
        )
    wrong = np.flatnonzero(label != dataset.labels[sample])
    if len(wrong):
        first = int(wrong[0])
        raise refuse(
            f"label {label[first]} of sample {sample[first]}",
            f"{name} has {dataset.labels[sample[first]]} there; "
            f"in all {counted(len(wrong), 'wrong label')}",
        )
    held = int(manifest["device"].max()) + 1
    if held != n_devices:
        raise refuse(counted(held, "device"), f"topology has {n_devices}; both must have as many")
    by_cloud = held_out(manifest, "validation")[1] == CLOUD
    if not (by_cloud if held_out_by == "cloud" else ~by_cloud).all():
        raise refuse(
            "validation records",
            f"partition.held_out_by: {held_out_by} means that others hold none of them",
        )


def file_of(table: pd.DataFrame) -> str:
    """The file that a table was read from; `the manifest` for one that was not read."""
    return table.attrs.get(FILE, "the manifest")


def _validation_mask(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """A random share of the training records with the label mix of all of them."""
    count = round(fraction * len(labels))
    if fraction > 0 and count == 0:
        raise InputError(
            "partition.validation_fraction",
            fraction,
            f"no record of {len(labels)}; valid: 0, or at least {1 / len(labels):.2g}",
        )
    rng = generator(seed, "partition-validation")
    return stratified_position(np.zeros_like(labels), labels, rng) < count


@dataclass(frozen=True, eq=False)
class DeviceSamples:
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


def shards_of(manifest: pd.DataFrame) -> DeviceSamples:
    """The training records of the manifest, by device."""
    train = manifest[manifest["split"] == "train"].sort_values(["device", "sample"])
    sizes = np.bincount(train["device"].to_numpy())
    return DeviceSamples(
        samples=train["sample"].to_numpy(dtype=np.int64),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
    )


def held_by_cloud(manifest: pd.DataFrame, split: str) -> np.ndarray:
    """(n,) int64: the records of a split that the cloud holds (`validation` or `test`)."""
    samples, holders = held_out(manifest, split)
    return samples[holders == CLOUD]


def held_out(manifest: pd.DataFrame, split: str) -> tuple[np.ndarray, np.ndarray]:
    """The records of a split that nobody trains on, and who holds them: (n,) int64 both."""
    rows = manifest[manifest["split"] == split]
    return rows["sample"].to_numpy(dtype=np.int64), rows["device"].to_numpy(dtype=np.int64)


def label_counts(manifest: pd.DataFrame) -> pd.DataFrame:
    """Training records of each device (index) by label (one column each).

    A simulation diagnostic: in a deployment these un-noised counts would be a release.
    """
    train = manifest[manifest["split"] == "train"]
    return pd.crosstab(train["device"], train["label"]).reindex(
        columns=pd.RangeIndex(manifest["label"].max() + 1, name="label"), fill_value=0
    )
