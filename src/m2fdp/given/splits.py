"""What a table must be to say which device holds which record."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.manifest import COLUMNS, SPLITS, file_of, held_out
from m2fdp.core.data.partitioners import CLOUD, Names
from m2fdp.core.data.sources import N_CLASSES
from m2fdp.core.errors import InputError, among, did_you_mean
from m2fdp.core.formatting import counted, some_of


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
    strata = dataset.strata(dataset.labels)
    wrong = np.flatnonzero(label != strata[sample])
    if len(wrong):
        first = int(wrong[0])
        raise refuse(
            f"label {label[first]} of sample {sample[first]}",
            f"{name} has {strata[sample[first]]} there; "
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
    place = np.array([SPLITS.index(each) for each in typed["split"]])
    order = np.lexsort((typed["sample"].to_numpy(), device, place))
    result = typed.iloc[order].reset_index(drop=True)
    result.attrs = dict(manifest.attrs)
    return result


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number; pandas makes floats where a column has lacked a value."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    # NaN differs from whatever it is compared with.
    return bool(-(2**53) < value < 2**53 and value % 1 == 0)


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


def rows_of_table(
    table: Sequence[Sequence[float]] | Mapping[str, Sequence[float]], names: Names, n_classes: int
) -> np.ndarray:
    """The rows of `partition.table` (D's Table 7 is one), in the order of some named devices.

    Raises:
        InputError: it has not one row a device and a column a class, or a class that nobody holds.
    """
    refuse, devices = partial(InputError, "partition.table"), names.devices
    if isinstance(table, Mapping):
        for name in (*table, *devices):
            if name not in table:
                raise refuse(list(table), f"lacks a row for {name}")
            if name not in devices:
                known = some_of(devices) + did_you_mean(name, devices)
                raise InputError(f"partition.table.{name}", table[name], f"is none of {known}")
        table = [table[name] for name in devices]
    elif names.given:
        problem = "is for names that topology.edges has; valid: name: row, for each of "
        raise refuse("rows without names", problem + some_of(devices))
    if len(table) != len(devices):
        valid = f"valid: {len(devices)}, one for each device"
        raise refuse(counted(len(table), "row"), valid)
    for number, row in enumerate(table):
        if len(row) != n_classes:
            valid = f"valid: a number for each of {n_classes} classes"
            raise refuse(f"row {number} of {len(row)}", valid)
    rows = np.array(table)
    if not (held := rows.any(axis=0)).all():
        problem = "valid: a device, at least, that holds the class"
        raise refuse(f"column {int(np.argmin(held))} of zeros", problem)
    return rows
