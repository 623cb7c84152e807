"""The split as one table: which record goes where; never copied pixels."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2fdp.core.config import PartitionConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.partitioners import CLOUD, Names, partition, stratified_position
from m2fdp.core.errors import InputError
from m2fdp.core.streams import generator

COLUMNS = ["dataset", "sample", "split", "label", "device"]
SPLITS = ["train", "validation", "test"]
FILE = "file"  # of a table's `attrs`: where it was read from
DIGEST = "sha256"  # of a table's `attrs`: of the file that it was read from


def make_manifest(
    dataset: Dataset,
    config: PartitionConfig,
    edges: np.ndarray,
    seed: int,
    names: Names | None = None,
) -> pd.DataFrame:
    """Deal the training records to the devices; validation and test records stay with the cloud,
    unless devices keep validation records of their own (`partition.held_out_by`).

    Args:
        edges: (n_devices,), the edge server above each device.

    Returns:
        One row a record that is used: `dataset, sample, split, label, device`, where device is a
        number, -1 for the cloud, and label is its stratum. Sorted by split (train, validation,
        test), device, sample.

    Raises:
        InputError: the records can't be dealt as asked.
    """
    labels, n_train = dataset.strata(dataset.labels), dataset.n_train
    by_devices = config.held_out_by == "devices"
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[:n_train] = _validation_mask(labels[:n_train], config.validation_fraction, seed)
    # What devices hold out of their own is dealt with all else.
    dealt = np.arange(n_train) if by_devices else np.flatnonzero(~held_out[:n_train])
    holder = np.full(len(labels), CLOUD, dtype=np.int64)
    clients = None if dataset.clients is None else dataset.clients[dealt]
    of_data = labels[dealt], dataset.n_strata
    holder[dealt] = partition(*of_data, config, edges, seed, names, clients)
    place = np.where(holder >= 0, 0, -1)  # in SPLITS; -1 = left out
    place[held_out if not by_devices else held_out & (holder >= 0)] = 1
    place[n_train:] = 2
    sample = np.lexsort((holder, place))
    sample = sample[place[sample] >= 0]
    split, label = np.array(SPLITS)[place[sample]], labels[sample]
    columns = [dataset.name, sample, split, label, holder[sample]]
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))


def by_name(manifest: pd.DataFrame, names: Names) -> pd.DataFrame:
    """A manifest with the names of its devices; with their numbers where nobody has named them."""
    if not names.given:
        return manifest
    texts = np.array([*names.devices, str(CLOUD)], dtype=object)
    return manifest.assign(device=texts[manifest["device"].to_numpy()]).astype({"device": str})


def file_of(table: pd.DataFrame) -> str:
    """The file that a table was read from; `the manifest` for one that was not read."""
    return table.attrs.get(FILE, "the manifest")


def _validation_mask(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """A random share of the training records with the label mix of all of them."""
    count = round(fraction * len(labels))
    if fraction > 0 and count == 0:
        valid = f"no record of {len(labels)}; valid: 0, or at least {1 / len(labels):.2g}"
        raise InputError("partition.validation_fraction", fraction, valid)
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
    samples, devices = held_out(manifest.sort_values(["device", "sample"]), "train")
    return DeviceSamples(samples, np.concatenate([[0], np.cumsum(np.bincount(devices))]))


def held_by_cloud(manifest: pd.DataFrame, split: str) -> np.ndarray:
    """(n,) int64: the records of a split that the cloud holds (`validation` or `test`)."""
    samples, holders = held_out(manifest, split)
    return samples[holders == CLOUD]


def held_out(manifest: pd.DataFrame, split: str) -> tuple[np.ndarray, np.ndarray]:
    """The records of a split and who holds them: (n,) int64 both."""
    rows = manifest[manifest["split"] == split]
    return rows["sample"].to_numpy(dtype=np.int64), rows["device"].to_numpy(dtype=np.int64)
