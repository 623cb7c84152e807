"""A user's own data set, and a user's own split of records."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from m2fdp.core.config import DatasetConfig, PartitionConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.partitioners import CLOUD, Names
from m2fdp.core.errors import InputError, did_you_mean
from m2fdp.core.formatting import counted, some_of
from m2fdp.core.streams import generator
from m2fdp.given.own_code import guarded, keywords_of, load, n_positional
from m2fdp.given.records import check_records, is_whole, plain
from m2fdp.sources.arrays import check_arrays


def takes_block(key: str, function: Callable[..., Any]) -> bool:
    """Whether a user's function is handed the whole block that names it by a key."""
    arguments = n_positional(function)
    return arguments != 0 if key == "dataset.name" else arguments == 5


def make_own(config: DatasetConfig, unpack_root: Path, seed: int = 0) -> Dataset:
    """The data set that the user's function `dataset.name` returns, under that name.

    The function takes nothing, or the block `dataset`. It may return images NxHxW as well.

    Raises:
        InputError: the function can't be imported or called, or returns no sound data set.
    """
    key, name = "dataset.name", config.name
    refuse = partial(InputError, key, name)
    function = load(key, name)
    given = (config,) if takes_block(key, function) else ()
    with guarded(key, name, f"can't be called with {'the block dataset' if given else '()'}"):
        dataset = function(*given)
    if not isinstance(dataset, Dataset):
        raise refuse(f"must return a m2fdp.core.data.dataset.Dataset, not {type(dataset).__name__}")
    check_records(dataset, refuse)
    arrays, called = {}, {}
    n_train = dataset.n_train
    for split, records in (("train", slice(n_train)), ("test", slice(n_train, None))):
        text = f"[{records.start or ''}:{records.stop or ''}]"
        for letter, field in (("x", "images"), ("y", "labels")):
            arrays[f"{letter}_{split}"] = getattr(dataset, field)[records]
            called[f"{letter}_{split}"] = f"{field}{text}"
    n_classes = check_arrays(arrays, called, refuse)
    if not is_whole(dataset.n_classes) or dataset.n_classes != n_classes:
        found = counted(n_classes, "class", "classes")
        has = f"has n_classes = {dataset.n_classes!r} and training records of {found}"
        raise refuse(f"{has}; valid: the same number")
    images, labels = plain(dataset.images, dataset.labels)
    return replace(dataset, name=name, images=images, labels=labels, n_train=int(dataset.n_train))


def by_own_code(
    labels: np.ndarray,
    n_classes: int,
    config: PartitionConfig,
    edges: np.ndarray,
    seed: int,
    names: Names,
) -> np.ndarray:
    """The devices (n,) that the user's function `partition.scheme` deals the records to.

    It takes labels (n,), the number of classes, the edge server above each device and a NumPy
    generator. A fifth argument gets the block `partition`, keywords `devices` and `servers` the
    names. It returns each record's device, by number or name, -1 for one that is left out.
    """
    key, name = "partition.scheme", config.scheme
    refuse = partial(InputError, key, name)
    function = load(key, name)
    told = {word: getattr(names, word) for word in {"devices", "servers"} & keywords_of(function)}

    def dealt() -> np.ndarray:
        rng = generator(seed, "partition-own")
        n_arguments = 5 if takes_block(key, function) else 4
        arguments = (labels.copy(), n_classes, edges.copy(), rng, config)[:n_arguments]
        with guarded(key, name, f"can't deal {len(labels)} records"):
            return np.asarray(function(*arguments, **told))

    found, n_devices = dealt(), len(edges)
    by_name = found.dtype.kind in "UOT"
    if found.shape != labels.shape or not (by_name or found.dtype.kind in "iu"):
        kind = f"{found.dtype} of shape {found.shape}"
        raise refuse(f"returns {kind}; valid: a whole number or a name a record, {labels.shape}")
    if names.given and not by_name and not told:
        raise refuse(
            "deals by numbers, and topology.edges has names; valid: it returns names, or takes "
            "`*, devices` or `*, servers`, which tell it whose the numbers are"
        )
    device = names.numbers(found.tolist(), by_name_alone=True) if by_name else found
    if device.min() < CLOUD or device.max() >= n_devices:
        wrong = found[(device < CLOUD) | (device >= n_devices)][0]
        valid = f"0 to {n_devices - 1}, and -1 = left out"
        if names.given:
            valid = f"-1 = left out, {some_of(names.devices)}{did_you_mean(wrong, names.devices)}"
        raise refuse(f"deals a record to device {wrong}; valid: {valid}")
    if not np.array_equal(found, dealt()):
        remedy = "draw from the generator that it is given"
        raise refuse(f"deals otherwise when it is called again; {remedy}")
    return device.astype(np.int64)
