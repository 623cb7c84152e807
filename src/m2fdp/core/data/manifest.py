"""The split as one table: which record goes where; never copied pixels."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.core.config import PartitionConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.partitioners import (
    CLOUD,
    Names,
    called,
    numbers_of,
    partition,
    stratified_position,
)
from m2fdp.core.data.sources import N_CLASSES
from m2fdp.core.errors import InputError, among, did_you_mean
from m2fdp.core.formatting import counted, some_of
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
        names: the devices' and servers' names; None = nobody has named them.

    Returns:
        One row a record that is used, with the columns `dataset, sample, split, label, device`;
        device is a number, -1 for the cloud. Sorted by split (train, validation, test), device,
        sample.

    Raises:
        InputError: if the records can't be dealt as asked.
    """
    training_labels, by_devices = dataset.labels[: dataset.n_train], config.held_out_by == "devices"
    is_validation = _validation_mask(training_labels, config.validation_fraction, seed)
    # What devices hold out of their own is dealt with all else.
    training = np.arange(dataset.n_train) if by_devices else np.flatnonzero(~is_validation)
    device = partition(training_labels[training], dataset.n_classes, config, edges, seed, names)
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
    manifest: pd.DataFrame,
    dataset: Dataset,
    n_devices: int,
    held_out_by: str = "cloud",
    names: Names | None = None,
) -> pd.DataFrame:
    """A split, maybe the user's own, as `make_manifest` returns it, once it is checked.

    Args:
        manifest: one row a record, in any order; `device` may be a number or a name.
        held_out_by: who keeps validation records, as `PartitionConfig` has it.
        names: the devices' and servers' names; None = nobody has named them.

    Raises:
        InputError: the table is none of this data set for these devices; it names the file.
    """
    names = names or Names.numbered([0] * n_devices)
    table = _typed(manifest, dataset.name, names)
    refuse, name = partial(InputError, file_of(manifest)), dataset.name
    sample, label = table["sample"].to_numpy(), table["label"].to_numpy()
    strange = sample[(sample < 0) | (sample >= len(dataset.labels))]
    if len(strange):
        last = len(dataset.labels) - 1
        raise refuse(int(strange[0]), f"is no sample; {name} has 0 to {last}")
    twice = table[table["sample"].duplicated(keep=False)]
    if len(twice):
        repeated = int(twice["sample"].iloc[0])
        rows = twice.loc[twice["sample"] == repeated, ["split", "device"]].itertuples(index=False)
        holders = ", ".join(
            called(device, names) if device != CLOUD else f"the cloud ({split})"
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
    _check_holders(table, names, held_out_by, refuse)
    return table


def _check_holders(
    table: pd.DataFrame, names: Names, held_out_by: str, refuse: Callable[[str, str], InputError]
) -> None:
    """Refuse devices without records, and records that are held by others than should hold them."""
    n_devices, holders = len(names.devices), {split: held_out(table, split)[1] for split in SPLITS}
    if (holders["train"] == CLOUD).any():
        problem = "holds training records; valid: devices, which alone train"
        raise refuse("the cloud (device -1)", problem)
    sizes = np.bincount(holders["train"], minlength=n_devices)
    if not sizes.all():
        raise refuse(
            counted(int((sizes > 0).sum()), "device"),
            f"topology has {n_devices}; both must have as many, and "
            f"{called(int(np.argmin(sizes)), names)} has no training record",
        )
    by_cloud = holders["validation"] == CLOUD
    if not (by_cloud if held_out_by == "cloud" else ~by_cloud).all():
        raise refuse(
            "validation records",
            f"partition.held_out_by: {held_out_by} means that others hold none of them",
        )
    if (holders["test"] != CLOUD).any():
        raise refuse("test records", "are held by devices; valid: by the cloud, device -1")


def _typed(manifest: pd.DataFrame, name: str, names: Names) -> pd.DataFrame:
    """The columns of a manifest with their types, its rows as `make_manifest` sorts them."""
    if not isinstance(manifest, pd.DataFrame):
        raise InputError("manifest", type(manifest).__name__, "is no DataFrame of pandas")
    refuse = partial(InputError, file_of(manifest))
    columns = [str(name) for name in manifest.columns]
    if sorted(columns) != sorted(COLUMNS):
        raise refuse(f"the columns {', '.join(columns) or '(none)'}", f"valid: {COLUMNS}")
    if manifest.empty:
        raise refuse("no row", "valid: one row a record")
    manifest = manifest.set_axis(columns, axis=1)
    # As plain objects: pandas has columns of many kinds, some of which compare as no other does.
    values = {name: manifest[name].astype(object).tolist() for name in COLUMNS}
    for other in values["dataset"]:
        if not (isinstance(other, str) and other == name):
            raise refuse(other, f"is not the data set of this run; dataset.name: {other}")
    for split in values["split"]:
        if not (isinstance(split, str) and split in SPLITS):
            raise refuse(f"split {split!r}", f"valid: {among(split, SPLITS)}")
    table = {key: _whole(key, values[key], refuse) for key in ("sample", "label")}
    table |= {key: np.array(values[key], dtype=object) for key in ("dataset", "split")}
    device = table["device"] = numbers_of(values["device"], names)
    if (device < CLOUD).any():
        wrong = values["device"][int(np.argmin(device))]
        n = len(names.devices)
        known = names.devices if names.given else [f"0 to {n - 1}"]
        valid = f"valid: -1 for the cloud, {some_of(known)}{did_you_mean(wrong, known)}"
        raise refuse(f"device {wrong!r}", f"is none of topology's {n}; {valid}")
    place = np.array([SPLITS.index(split) for split in values["split"]])
    order = np.lexsort((table["sample"], device, place))
    result = pd.DataFrame({name: table[name][order] for name in COLUMNS})
    result.attrs = dict(manifest.attrs)
    return result.astype({"dataset": str, "split": str})


def _whole(name: str, values: list[Any], refuse: Callable[[str, str], InputError]) -> np.ndarray:
    """A column's whole numbers; pandas makes floats of them where one has been absent."""
    for value in values:
        is_number = isinstance(value, (int, float, np.integer, np.floating))
        # NaN differs from whatever it is compared with.
        if isinstance(value, bool) or not is_number or not abs(value) < 2**53 or value % 1:
            raise refuse(f"{name} {value!r}", "valid: whole numbers")
    return np.array(values, dtype=np.int64)


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
    """The records of a split and who holds them: (n,) int64 both."""
    rows = manifest[manifest["split"] == split]
    return rows["sample"].to_numpy(dtype=np.int64), rows["device"].to_numpy(dtype=np.int64)


def label_counts(manifest: pd.DataFrame) -> pd.DataFrame:
    """Training records of each device (index; names are in the manifest's order) by label (one
    column each).

    A simulation diagnostic: in a deployment these un-noised counts would be a release.
    """
    train = manifest[manifest["split"] == "train"]
    table = pd.crosstab(train["device"], train["label"]).reindex(
        columns=pd.RangeIndex(manifest["label"].max() + 1, name="label"), fill_value=0
    )
    return table if train["device"].dtype.kind == "i" else table.loc[train["device"].unique()]


@dataclass(frozen=True)
class Repeats:
    """How many records of a split are equal to others, pixel by pixel.

    Attributes:
        held_out: held-out records that are trained on as well.
        n_held_out: all held-out records.
        on_devices: training records that another device holds too.
    """

    held_out: int = 0
    n_held_out: int = 0
    on_devices: int = 0


def count_repeats(dataset: Dataset, manifest: pd.DataFrame) -> Repeats:
    """The repeats of a checked split. None are counted where most training records are like others
    anyway, nor in published data sets, which are as they are.

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
