"""The split as one table: which record goes where; never copied pixels."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.core.config import PartitionConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.partitioners import CLOUD, Names, partition, stratified_position
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
        One row a record that is used: `dataset, sample, split, label, device`, where device is a
        number, -1 for the cloud. Sorted by split (train, validation, test), device, sample.

    Raises:
        InputError: if the records can't be dealt as asked.
    """
    labels, n_train = dataset.labels, dataset.n_train
    by_devices = config.held_out_by == "devices"
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[:n_train] = _validation_mask(labels[:n_train], config.validation_fraction, seed)
    # What devices hold out of their own is dealt with all else.
    dealt = np.arange(n_train) if by_devices else np.flatnonzero(~held_out[:n_train])
    holder = np.full(len(labels), CLOUD, dtype=np.int64)
    holder[dealt] = partition(labels[dealt], dataset.n_classes, config, edges, seed, names)
    place = np.where(holder >= 0, 0, -1)  # in SPLITS; -1 = left out
    place[held_out if not by_devices else held_out & (holder >= 0)] = 1
    place[n_train:] = 2
    sample = np.lexsort((holder, place))
    sample = sample[place[sample] >= 0]
    split, label = np.array(SPLITS)[place[sample]], labels[sample]
    columns = [dataset.name, sample, split, label, holder[sample]]
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))


def check_manifest(
    manifest: pd.DataFrame, dataset: Dataset, names: Names, held_out_by: str = "cloud"
) -> pd.DataFrame:
    """A split, maybe the user's own, as `make_manifest` returns it, once it is checked.

    Args:
        manifest: one row a record, in any order; `device` may be a number or a name.
        held_out_by: who keeps validation records, as `PartitionConfig` has it.

    Raises:
        InputError: the table is none of this data set for these devices; it names the file.
    """
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
            names.called(device) if device != CLOUD else f"the cloud ({split})"
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
    training, validation, test = (held_out(table, split)[1] for split in SPLITS)
    if (training == CLOUD).any():
        problem = "holds training records; valid: devices, which alone train"
        raise refuse("the cloud (device -1)", problem)
    sizes = np.bincount(training, minlength=len(names.devices))
    if not sizes.all():
        raise refuse(
            counted(int((sizes > 0).sum()), "device"),
            f"topology has {len(sizes)}; both must have as many, and "
            f"{names.called(int(np.argmin(sizes)))} has no training record",
        )
    if ((validation == CLOUD) != (held_out_by == "cloud")).any():
        problem = f"partition.held_out_by: {held_out_by} means that others hold none of them"
        raise refuse("validation records", problem)
    if (test != CLOUD).any():
        raise refuse("test records", "are held by devices; valid: by the cloud, device -1")


def _typed(manifest: pd.DataFrame, name: str, names: Names) -> pd.DataFrame:
    """The columns of a manifest with their types, its rows as `make_manifest` sorts them."""
    if not isinstance(manifest, pd.DataFrame):
        raise InputError("manifest", type(manifest).__name__, "is no DataFrame of pandas")
    refuse = partial(InputError, file_of(manifest))
    columns = [str(column) for column in manifest.columns]
    if sorted(columns) != sorted(COLUMNS):
        raise refuse(f"the columns {', '.join(columns) or '(none)'}", f"valid: {COLUMNS}")
    if manifest.empty:
        raise refuse("no row", "valid: one row a record")
    # As plain objects: pandas has columns of many kinds, some of which compare as no other does.
    table = manifest.set_axis(columns, axis=1)[COLUMNS].astype(object)
    for other in table["dataset"]:
        if not (isinstance(other, str) and other == name):
            raise refuse(other, f"is not the data set of this run; dataset.name: {other}")
    for split in table["split"]:
        if not (isinstance(split, str) and split in SPLITS):
            raise refuse(f"split {split!r}", f"valid: {among(split, SPLITS)}")
    for column in ("sample", "label"):
        for value in table[column]:
            if not _is_whole(value):
                raise refuse(f"{column} {value!r}", "valid: whole numbers")
    device = names.numbers(table["device"].tolist())
    if (device < CLOUD).any():
        wrong, n = table["device"].tolist()[int(np.argmin(device))], len(names.devices)
        known = names.devices if names.given else [f"0 to {n - 1}"]
        valid = f"valid: -1 for the cloud, {some_of(known)}{did_you_mean(wrong, known)}"
        raise refuse(f"device {wrong!r}", f"is none of topology's {n}; {valid}")
    kinds = {"dataset": str, "sample": np.int64, "split": str, "label": np.int64}
    typed = table.assign(device=device).astype(kinds)
    order = np.lexsort((typed["sample"], device, [SPLITS.index(each) for each in typed["split"]]))
    result = typed.iloc[order].reset_index(drop=True)
    result.attrs = dict(manifest.attrs)
    return result


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number; pandas makes floats where a column has lacked a value."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    # NaN differs from whatever it is compared with.
    return abs(value) < 2**53 and not value % 1


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


def repeated_records(dataset: Dataset, manifest: pd.DataFrame) -> list[str]:
    """Sentences on records of a checked split that are equal to others, pixel by pixel.

    None where most training records are like others anyway, nor on published data sets, which are
    as they are.

    Raises:
        InputError: every record that is held out is trained on too.
    """
    if dataset.name in (*N_CLASSES, "synthetic"):
        return []
    pixels = (dataset.images[sample].tobytes() for sample in manifest["sample"])
    digests = pd.Series([blake2b(each, digest_size=16).digest() for each in pixels])
    is_training = (manifest["split"] == "train").to_numpy()
    trained, others = digests[is_training], digests[~is_training]
    if 2 * (~trained.duplicated(keep=False)).sum() < len(trained):
        return []
    seen, lines = int(others.isin(trained).sum()), []
    if seen and seen == len(others):
        raise InputError(
            "dataset.name",
            dataset.name,
            f"has {seen} records to test on, each of which is trained on as well: accuracy would "
            "be that of a memory; valid: test records that are no training records",
        )
    if seen:
        lines.append(
            f"{seen} of the {len(others)} records that nobody trains on are training records as "
            "well, pixel by pixel: accuracy is too good by them"
        )
    holders = pd.Series(manifest["device"].to_numpy()[is_training]).groupby(trained.to_numpy())
    if on_devices := int((holders.transform("nunique") > 1).sum()):
        lines.append(
            f"{on_devices} training records are held by several devices, pixel by pixel: "
            "whoever's they are is protected as if each were somebody else's"
        )
    return lines
