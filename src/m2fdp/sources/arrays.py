"""A user's own records: arrays in a file, or the data set that a function of theirs makes."""

import os
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError, one_line
from m2fdp.core.formatting import counted, some_of
from m2fdp.given.records import MOST_CLASSES, Refuse, check_images, check_labels, plain

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
# What a file begins with that is no archive of arrays.
_OTHERS = {b"PAR1": "Parquet", b"\x89HDF": "HDF5", b"\x93NUM": "a single array, .npy"}


def read_npz(config: DatasetConfig, unpack_root: Path, seed: int = 0) -> Dataset:
    """The data set of the file `dataset.root`, a `.npz` with `x_train, y_train, x_test, y_test`.

    Images are NxHxW or NxHxWxC, uint8 or floats in [0, 1]; labels are integers from 0.

    Raises:
        InputError: no such file, or it holds something else.
    """
    refuse = partial(InputError, "dataset.root", config.root)
    arrays = _stored(config.root, _ARRAYS, refuse, "dataset.name=npz")
    n_classes = check_arrays(arrays, {name: name for name in _ARRAYS}, refuse)
    images = np.concatenate([arrays["x_train"], arrays["x_test"]])
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    return Dataset("npz", *plain(images, labels), len(arrays["y_train"]), n_classes)


def read_images(key: str, file: str, name: str) -> np.ndarray:
    """The images (N, H, W, C), uint8 or float32, under a name in a file `.npz` of a key's.

    Raises:
        InputError: no such file, it holds something else, or no image of it has any contrast.
    """
    refuse = partial(InputError, key, file)
    images = _stored(file, (name,), refuse, key)[name]
    check_images(images, name, refuse)
    by_image = images.reshape(len(images), -1)
    if (by_image == by_image[:, :1]).all():
        raise refuse(f"{name} holds images of one colour each; valid: images that show something")
    return plain(images, np.zeros(len(images)))[0]


def read_records(key: str, file: str, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, H, W, C), uint8 or float32, and labels int64 (N,), under `x` and `y` in a file
    `.npz` of a key's.

    Raises:
        InputError: no such file, or it holds something else.
    """
    refuse = partial(InputError, key, file)
    arrays = _stored(file, ("x", "y"), refuse, key)
    check_images(arrays["x"], "x", refuse)
    check_labels("y", arrays["y"], arrays["x"], refuse)
    if arrays["y"].min() < 0 or arrays["y"].max() >= n_classes:
        raise refuse(f"y has labels beyond 0 to {n_classes - 1}, the plan's")
    return plain(arrays["x"], arrays["y"])


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


def check_arrays(
    arrays: Mapping[str, np.ndarray], called: Mapping[str, str], refuse: Refuse
) -> int:
    """The number of classes; refuses arrays, by the names in `_ARRAYS`, that are no images and
    labels that can be learnt. `called` is what the user calls them."""
    x_train, y_train, x_test, y_test = (arrays[name] for name in _ARRAYS)
    for split, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        images, labels = called[f"x_{split}"], called[f"y_{split}"]
        check_images(x, images, refuse)
        check_labels(labels, y, x, refuse)
    if x_train.dtype.kind != x_test.dtype.kind or x_train.shape[1:] != x_test.shape[1:]:
        raise refuse(
            f"{called['x_train']} holds {x_train.shape[1:]} {x_train.dtype} and {called['x_test']} "
            f"{x_test.shape[1:]} {x_test.dtype}; valid: the same shape and type in both"
        )
    classes = np.unique(y_train)
    if len(classes) < 2 or not np.array_equal(classes, np.arange(len(classes))):
        absent = np.setdiff1d(np.arange(min(int(classes[-1]), MOST_CLASSES)), classes)
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
