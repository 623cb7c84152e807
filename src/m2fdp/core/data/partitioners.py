"""Who holds which training record (J Sec. VI-A and the schemes federated learning compares on).

Every scheme here is one matrix, affinity[device, stratum] >= 0. A stratum is a class, or all
records where a scheme does not look at labels. Its records are dealt at random, to devices in
proportion to its column. At edge level all devices of one edge server have the same row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from m2fdp.core.config import PartitionConfig
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import counted
from m2fdp.core.own_code import GIVEN, OWN, is_own
from m2fdp.core.streams import generator

CLOUD = -1


@dataclass(frozen=True)
class Names:
    """What devices and the servers above them are called, in the order of the devices' numbers.

    Attributes:
        devices: (n_devices,), the devices' names.
        servers: (n_devices,), the name of the edge server above each device.
        given: whether they are the user's own: then a number alone says nothing of a device.
    """

    devices: tuple[str, ...]
    servers: tuple[str, ...]
    given: bool = True

    @staticmethod
    def numbered(edges: Sequence[int]) -> "Names":
        """Names of devices that nobody has named, from the edge server above each."""
        devices = tuple(f"device-{j}" for j in range(len(edges)))
        return Names(devices, tuple(f"server-{edge}" for edge in edges), given=False)

    def called(self, device: int) -> str:
        """What a line calls a device."""
        return self.devices[device] if self.given else f"device {device}"

    def numbers(self, values: Sequence[object], by_name_alone: bool = False) -> np.ndarray:
        """The devices' numbers, int64 (n,), of names or numbers; -1 for the cloud, -2 for what is
        neither. Numbers count only where no name looks like one."""
        number_of = {name: j for j, name in enumerate(self.devices)}
        if not by_name_alone and not any(map(_is_number, self.devices)):
            number_of |= {str(j): j for j in range(len(self.devices))}
        number_of[str(CLOUD)] = CLOUD
        found = (
            # A column that has lacked a value somewhere holds whole numbers as floats.
            number_of.get(text, number_of.get(text.removesuffix(".0"), -2))
            for text in map(str, values)
        )
        return np.fromiter(found, dtype=np.int64, count=len(values))


def _is_number(name: str) -> bool:
    """Whether whoever reads a table may take a name, such as `007`, for a number."""
    try:
        float(name)
    except ValueError:
        return False
    return True


def partition(
    labels: np.ndarray,
    n_classes: int,
    config: PartitionConfig,
    edges: np.ndarray,
    seed: int,
    names: Names | None = None,
    clients: np.ndarray | None = None,
) -> np.ndarray:
    """The device that holds each record, int64 (n,); -1 for one left out by `samples_per_device`.

    Args:
        labels: (n,), the labels of the training records, in 0…n_classes-1.
        edges: (n_devices,), the edge server above each device.
        clients: (n,), the name of the device that each record is of, for the scheme `column`.

    Raises:
        InputError: a device would hold nothing, or not as many classes as asked for, or own code
            does not deal the records.
    """
    names = names or Names.numbered(edges.tolist())
    if len(edges) > len(labels):
        valid = f"at most one device a training record, here {len(labels)}"
        remedy = "use fewer devices or a larger data set"
        raise InputError("topology", f"{len(edges)} devices", f"{valid}; {remedy}")
    if config.scheme == "column":
        device: np.ndarray = GIVEN["clients"](clients, names)
    else:
        deal = OWN["partition.scheme"] if is_own(config.scheme) else _by_affinity
        device = deal(labels, n_classes, config, edges, seed, names)
    if config.samples_per_device is not None:
        position = stratified_position(device, labels, generator(seed, "partition-cap"))
        device[position >= config.samples_per_device] = -1
    _check(device, labels, n_classes, names, config)
    return device


def _by_affinity(
    labels: np.ndarray,
    n_classes: int,
    config: PartitionConfig,
    edges: np.ndarray,
    seed: int,
    names: Names,
) -> np.ndarray:
    """The schemes of this module; all records are dealt."""
    rng = generator(seed, "partition-affinity")
    n_devices = len(edges)
    match config.scheme:
        case "labels_per_device":
            rows = _label_sets(_label_count(config, n_classes), n_devices, n_classes, rng)
        case "dirichlet":
            # Hsu et al. 2019. A class whose draws all underflow at a tiny alpha is shared equally.
            shares = rng.dirichlet(np.full(n_classes, config.alpha), size=n_devices)
            rows = shares + np.finfo(np.float64).tiny
        case "quantity":
            rows = rng.dirichlet(np.full(n_devices, config.alpha))[:, None]
        case "table":
            rows = GIVEN["partition.table"](config.table, names, n_classes)
        case _:  # iid
            rows = np.ones((n_devices, 1))
    strata = labels if rows.shape[1] > 1 else np.zeros_like(labels)
    return _deal(strata, rows, generator(seed, "partition-records"))


def stratified_position(
    group: np.ndarray, label: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Each record's place, from 0, in a random order of its group that spreads the labels evenly:
    int64 (n,), of integers (n,).

    The first m records of a group are then a random subset with the group's label mix: seats
    apportioned to the labels by the method of Webster and Sainte-Laguë.
    """
    order = np.argsort(rng.permutation(len(group)))
    group, label = group[order], label[order]
    alike = group * (label.max(initial=0) + 1) + label
    quotients = (_count_within(alike) + 0.5) / np.bincount(alike)[alike]
    by_quotient = np.argsort(quotients, kind="stable")
    places = np.empty(len(group), dtype=np.int64)
    places[order[by_quotient]] = _count_within(group[by_quotient])
    return places


def _count_within(keys: np.ndarray) -> np.ndarray:
    """How many equal keys come before each, int64 (n,)."""
    sizes = np.bincount(keys)
    counts = np.empty(len(keys), dtype=np.int64)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    counts[np.argsort(keys, kind="stable")] = np.arange(len(keys)) - starts
    return counts


def _label_count(config: PartitionConfig, n_classes: int) -> int:
    """The classes of a device; the default suits a data set of two classes as well."""
    count, usual = config.labels_per_device, PartitionConfig().labels_per_device
    return min(count, n_classes) if count == usual else count


def _label_sets(k: int, n_devices: int, n_classes: int, rng: np.random.Generator) -> np.ndarray:
    """0/1 rows of k classes: a device takes those that the fewest hold so far, ties at random."""
    refuse = partial(InputError, "partition.labels_per_device", k)
    if k > n_classes:
        raise refuse(f"valid: 1 to {n_classes}, the number of classes")
    if k * n_devices < n_classes:
        raise refuse(
            f"{counted(n_devices, 'label set')} of {k} leave some of the {n_classes} classes "
            f"without a holder; valid: {-(-n_classes // n_devices)} to {n_classes}"
        )
    rows = np.zeros((n_devices, n_classes))
    holders = np.zeros(n_classes, dtype=np.int64)
    for device in np.argsort(rng.permutation(n_devices)):
        classes = np.lexsort((rng.permutation(n_classes), holders))[:k]
        rows[device, classes] = 1
        holders[classes] += 1
    return rows


def _deal(strata: np.ndarray, affinity: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Deal each stratum's records at random, in numbers proportional to its column. What rounding
    leaves over goes to the devices that it has shorted most so far."""
    device = np.empty(len(strata), dtype=np.int64)
    order = rng.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    ends = np.searchsorted(strata[order], np.arange(affinity.shape[1]), side="right")
    debt = np.zeros(len(affinity))
    for column, records in zip(affinity.T, np.split(order, ends[:-1]), strict=True):
        # Rounded, so that no machine's last bit decides who gets a record.
        ideal = np.round(column / column.sum() * len(records), 9)
        counts = np.floor(ideal).astype(np.int64)
        debt = np.round(debt + ideal - counts, 9)
        n_remaining = len(records) - counts.sum()
        shorted = np.argsort(np.where(ideal > counts, -debt, np.inf), kind="stable")[:n_remaining]
        counts[shorted] += 1
        debt[shorted] -= 1
        device[records] = np.repeat(np.arange(len(affinity)), counts)
    return device


def _check(
    device: np.ndarray, labels: np.ndarray, n_classes: int, names: Names, config: PartitionConfig
) -> None:
    """Refuse devices without records, or with fewer classes than asked for."""
    held, n_devices = device >= 0, len(names.devices)
    sizes = np.bincount(device[held], minlength=n_devices)
    if not sizes.all():
        remedies = {
            "labels_per_device": "a larger partition.labels_per_device, ",
            "dirichlet": "a larger partition.alpha, ",
            "quantity": "a larger partition.alpha, ",
            "table": "a row of partition.table that is not zero, ",
        }
        remedy = f"use {remedies.get(config.scheme, '')}fewer devices or a larger data set"
        problem = f"{names.called(int(np.argmin(sizes)))} would hold no record; {remedy}"
        raise InputError("partition.scheme", config.scheme, problem)
    if config.scheme == "labels_per_device":
        pairs = np.unique(np.stack([device[held], labels[held]]), axis=1)
        classes = np.bincount(pairs[0], minlength=n_devices)
        if (classes < _label_count(config, n_classes)).any():
            fewest = counted(int(classes.min()), "class", "classes")
            raise InputError(
                "partition.labels_per_device",
                config.labels_per_device,
                f"{names.called(int(np.argmin(classes)))} would hold records of {fewest} only; "
                "use fewer labels, fewer devices, a larger data set or a larger "
                "partition.samples_per_device",
            )
