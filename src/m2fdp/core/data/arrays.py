"""A user's own records: arrays in a file, or the data set that a function of theirs makes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from zipfile import BadZipFile

import numpy as np

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError, one_line
from m2fdp.core.formatting import counted, some_of
from m2fdp.core.own_code import guarded, load, n_positional

# What images have: grey, colour, colour and alpha.
_CHANNELS = (1, 3, 4)
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_MOST_CLASSES = 100_000  # lest one wild number stand for millions of parameters
# How far pixels may lie beyond 0 and 1 by rounding alone; such are put on the border.
_ROUNDING = 1e-6
# What a file begins with that is no archive of arrays.
_OTHERS = {b"PAR1": "Parquet", b"\x89HDF": "HDF5", b"\x93NUM": "a single array, .npy"}
Refuse = Callable[[str], InputError]


def read_npz(file: str) -> Dataset:
    """The data set of a file `.npz` with `x_train, y_train, x_test, y_test`.

    Images are NxHxW or NxHxWxC, uint8 or floats in [0, 1]; labels are integers from 0.

    Raises:
        InputError: no such file, or it holds something else.
    """
    refuse = partial(InputError, "dataset.root", file)
    arrays = _stored(file, _ARRAYS, refuse, "dataset.name=npz")
    n_classes = _check(arrays, {name: name for name in _ARRAYS}, refuse)
    images = np.concatenate([arrays["x_train"], arrays["x_test"]])
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    return Dataset("npz", *_plain(images, labels), len(arrays["y_train"]), n_classes)


def read_images(key: str, file: str, name: str) -> np.ndarray:
    """The images (N, H, W, C), uint8 or float32, under a name in a file `.npz` of a key's.

    Raises:
        InputError: no such file, it holds something else, or no image of it has any contrast.
    """
    refuse = partial(InputError, key, file)
    images = _stored(file, (name,), refuse, key)[name]
    _check_images(images, name, refuse)
    by_image = images.reshape(len(images), -1)
    if (by_image == by_image[:, :1]).all():
        raise refuse(f"{name} holds images of one colour each; valid: images that show something")
    return _by_channel(images)


def read_records(key: str, file: str, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, H, W, C), uint8 or float32, and labels int64 (N,), under `x` and `y` in a file
    `.npz` of a key's.

    Raises:
        InputError: no such file, or it holds something else.
    """
    refuse = partial(InputError, key, file)
    arrays = _stored(file, ("x", "y"), refuse, key)
    _check_images(arrays["x"], "x", refuse)
    _check_labels("y", arrays["y"], arrays["x"], refuse)
    if arrays["y"].min() < 0 or arrays["y"].max() >= n_classes:
        raise refuse(f"y has labels beyond 0 to {n_classes - 1}, the plan's")
    return _plain(arrays["x"], arrays["y"])


def is_file(file: str) -> bool:
    """Whether there is a file of that name; not where the name itself can't be one."""
    return os.path.isfile(os.path.expanduser(file))


def _stored(file: str, names: tuple[str, ...], refuse: Refuse, what: str) -> dict[str, np.ndarray]:
    """Arrays of a file by name."""
    path, listed = os.path.expanduser(file), ", ".join(names)
    if not is_file(file):
        plural = "arrays" if len(names) > 1 else "array"
        raise refuse(f"no such file; {what} needs a .npz file with the {plural} {listed}")
    try:
        with open(path, "rb") as content:
            begins = content.read(4)
        if not begins.startswith(b"PK"):
            raise ValueError(f"it is {_OTHERS.get(begins, 'another kind of file')}")
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files if name in names}
    except (ValueError, OSError, EOFError, BadZipFile, zlib.error, TypeError) as error:
        problem = f"not a readable .npz file, as np.savez writes arrays ({one_line(error)})"
        raise refuse(problem) from error
    if absent := [name for name in names if name not in arrays]:
        raise refuse(f"lacks {', '.join(absent)}; needs {listed}")
    return arrays


def make_own(config: DatasetConfig) -> Dataset:
    """The data set that the user's function `dataset.name` returns, under that name.

    The function takes nothing, or the block `dataset`. It may return images NxHxW as well.

    Raises:
        InputError: the function can't be imported or called, or returns no sound data set.
    """
    key, name = "dataset.name", config.name
    refuse = partial(InputError, key, name)
    function = load(key, name)
    takes_block = n_positional(function) != 0
    with guarded(key, name, f"can't be called with {'the block dataset' if takes_block else '()'}"):
        dataset = function(config) if takes_block else function()
    if not isinstance(dataset, Dataset):
        raise refuse(f"must return a m2fdp.core.data.dataset.Dataset, not {type(dataset).__name__}")
    _records_of(dataset, refuse)
    arrays, called = {}, {}
    n_train = dataset.n_train
    for split, records in (("train", slice(n_train)), ("test", slice(n_train, None))):
        text = f"[{records.start or ''}:{records.stop or ''}]"
        for letter, field in (("x", "images"), ("y", "labels")):
            arrays[f"{letter}_{split}"] = getattr(dataset, field)[records]
            called[f"{letter}_{split}"] = f"{field}{text}"
    n_classes = _check(arrays, called, refuse)
    if not _is_whole(dataset.n_classes) or dataset.n_classes != n_classes:
        raise refuse(
            f"has n_classes = {dataset.n_classes!r} and training records of "
            f"{counted(n_classes, 'class', 'classes')}; "
            "valid: the same number"
        )
    images, labels = _plain(dataset.images, dataset.labels)
    return replace(dataset, name=name, images=images, labels=labels, n_train=int(dataset.n_train))


def checked(dataset: Dataset) -> Dataset:
    """A data set that was given in Python, checked like one that is read: that it has neither test
    records nor a training record of each class is no fault of it.

    Raises:
        InputError: images that are none in [0, 1], or labels that are none of its classes'.
    """
    kind = type(dataset).__name__  # a line has no room for the values
    if not isinstance(dataset, Dataset):
        raise InputError("dataset", kind, "is no m2fdp.core.data.dataset.Dataset")
    refuse = partial(InputError, "dataset", dataset.name)
    if not isinstance(dataset.name, str):
        raise InputError("dataset", dataset.name, "is no name; valid: a text")
    images, labels = _records_of(dataset, refuse, least=0)
    _check_images(images, "images", refuse)
    _check_labels("labels", labels, images, refuse)
    if not _is_whole(dataset.n_classes) or labels.min() < 0 or labels.max() >= dataset.n_classes:
        raise refuse(
            f"has n_classes = {dataset.n_classes!r} and labels from {labels.min()} to "
            f"{labels.max()}; valid: 0 to n_classes - 1"
        )
    if not 2 <= dataset.n_classes <= _MOST_CLASSES:
        problem = ", so that every answer is right" if dataset.n_classes == 1 else ""
        valid = f"valid: 2 to {_MOST_CLASSES:,} classes"
        raise refuse(f"has n_classes = {dataset.n_classes}{problem}; {valid}")
    plain_images, plain_labels = _plain(images, labels)
    if plain_images is images and plain_labels is labels:
        return dataset
    return replace(dataset, images=plain_images, labels=plain_labels)


def _records_of(dataset: Dataset, refuse: Refuse, least: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a data set, one label an image, the first `n_train` to be trained on."""
    for field in ("images", "labels"):
        value = getattr(dataset, field)
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
            raise refuse(f"has {field} of type {type(value).__name__}; valid: a NumPy array")
    n = len(dataset.labels) if dataset.labels.ndim else 0
    if not _is_whole(dataset.n_train) or not least <= dataset.n_train <= n - least:
        valid = f"{least} to {n - least}{', less than all records' if least else ''}"
        raise refuse(f"has n_train = {dataset.n_train!r}; valid: {valid}")
    if dataset.images.ndim == 0 or len(dataset.images) != n:
        raise refuse(f"has {dataset.images.shape} images for {n} labels; valid: one label an image")
    return dataset.images, dataset.labels


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _plain(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Checked images as (N, H, W, C), uint8 or float32, and labels as int64."""
    return _by_channel(images), labels.astype(np.int64, copy=False)


def _by_channel(images: np.ndarray) -> np.ndarray:
    """Checked images as (N, H, W, C), uint8 or float32."""
    kind = np.uint8 if images.dtype == np.uint8 else np.float32
    by_channel = (images if images.ndim == 4 else images[..., None]).astype(kind, copy=False)
    beyond = kind is np.float32 and (by_channel.min() < 0 or by_channel.max() > 1)
    return by_channel.clip(0, 1) if beyond else by_channel


def _check_images(x: np.ndarray, called: str, refuse: Refuse) -> None:
    """Refuse arrays that are no images."""
    if x.ndim not in (3, 4) or 0 in x.shape:
        raise refuse(f"{called} has shape {x.shape}; valid: NxHxW or NxHxWxC, none of them 0")
    if x.ndim == 4 and x.shape[3] not in _CHANNELS and x.shape[1] in _CHANNELS:
        raise refuse(
            f"{called} has shape {x.shape}, with channels first; valid: NxHxWxC, as "
            f"{called}.transpose(0, 2, 3, 1) makes it"
        )
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise refuse(f"{called} has type {x.dtype}; valid: uint8, or floats in [0, 1]")
    low, high = x.min(), x.max()
    if np.isnan(low):
        raise refuse(f"{called} has pixels that are nan, no number; valid: floats in [0, 1]")
    if x.dtype.kind == "f" and not (low >= -_ROUNDING and high <= 1 + _ROUNDING):
        raise refuse(
            f"{called} ranges from {low:.9g} to {high:.9g}; valid: floats in [0, 1], "
            "scaled by a constant, or uint8"
        )


def _check_labels(called: str, y: np.ndarray, x: np.ndarray, refuse: Refuse) -> None:
    """Refuse arrays that are no labels of the images."""
    if y.shape != x.shape[:1]:
        raise refuse(f"{called} has shape {y.shape}; valid: one label an image, {x.shape[:1]}")
    if y.dtype.kind not in "iu":
        raise refuse(f"{called} has type {y.dtype}; valid: integers")


def _check(arrays: Mapping[str, np.ndarray], called: Mapping[str, str], refuse: Refuse) -> int:
    """The number of classes; refuses arrays, by the names in `_ARRAYS`, that are no images and
    labels that can be learnt. `called` is what the user calls them."""
    x_train, y_train, x_test, y_test = (arrays[name] for name in _ARRAYS)
    for split, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        images, labels = called[f"x_{split}"], called[f"y_{split}"]
        _check_images(x, images, refuse)
        _check_labels(labels, y, x, refuse)
    if x_train.dtype.kind != x_test.dtype.kind or x_train.shape[1:] != x_test.shape[1:]:
        raise refuse(
            f"{called['x_train']} holds {x_train.shape[1:]} {x_train.dtype} and {called['x_test']} "
            f"{x_test.shape[1:]} {x_test.dtype}; valid: the same shape and type in both"
        )
    classes = np.unique(y_train)
    if len(classes) < 2 or not np.array_equal(classes, np.arange(len(classes))):
        absent = np.setdiff1d(np.arange(min(int(classes[-1]), _MOST_CLASSES)), classes)
        lacking = f", but none is {some_of(absent.tolist())}" if len(absent) else ""
        raise refuse(
            f"{called['y_train']} has {counted(len(classes), 'distinct label')} from {classes[0]} "
            f"to {classes[-1]}{lacking}; "
            "valid: 0 to C-1, each of the C >= 2 classes at least once"
        )
    if y_test.min() < 0 or y_test.max() >= len(classes):
        raise refuse(
            f"{called['y_test']} has labels from {y_test.min()} to {y_test.max()}; "
            f"valid: 0 to {len(classes) - 1}, the labels of {called['y_train']}"
        )
    return len(classes)
