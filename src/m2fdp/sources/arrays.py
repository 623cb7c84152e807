"""A user's own records: arrays in a file, or the data set that a function of theirs makes."""

import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError, one_line
from m2fdp.core.formatting import counted, some_of
from m2fdp.given.records import MOST_CLASSES, Refuse, check_images, check_labels, plain

# What arrays of a file are meant, of the names of all.
Chosen = Callable[[Sequence[str]], Sequence[str]]
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_KINDS = {
    "x": "x|images?|data|features",
    "y": "y|labels?|targets?",
    "client": "clients?|users?|devices?",
}
# What a file begins with that is no archive of arrays.
_OTHERS = {b"PAR1": "Parquet", b"\x89HDF": "HDF5", b"\x93NUM": "a single array, .npy"}


def read_npz(config: DatasetConfig, unpack_root: Path, seed: int = 0) -> Dataset:
    """The data set of the file `dataset.root`, a `.npz` with images and labels to train and to test
    on, such as `x_train, y_train, x_test, y_test` or MedMNIST's `train_images, train_labels, ...`.

    Images are NxHxW or NxHxWxC, uint8 or floats in [0, 1]. Labels (N,) or (N, 1) are whole numbers,
    texts or booleans; the classes are numbered in their order. The arrays
    `client_train` and `client_test` name each record's client.

    Raises:
        InputError: no such file, or it holds something else.
    """
    refuse = partial(InputError, "dataset.root", config.root)
    arrays, called, notes = _named(config.root, refuse)
    clients = []
    for split in ("train", "test"):
        n = len(arrays[f"x_{split}"]) if arrays[f"x_{split}"].ndim else 0
        for kind in ("y", "client"):
            if (role := f"{kind}_{split}") in arrays:
                arrays[role] = plain_values(arrays[role], called[role], n, refuse)
        clients.append(arrays.get(f"client_{split}", np.full(n, "")).astype(str))
    train, test = arrays["y_train"], arrays["y_test"]
    classes = np.unique(train)
    if (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        types = f"{train.dtype} and {called['y_test']} {test.dtype}"
        raise refuse(f"{called['y_train']} has type {types}; valid: numbers in both, or texts")
    if len(classes) and len(unseen := np.setdiff1d(test, classes)):
        valid = f"valid: those of {called['y_train']}, {some_of(classes.tolist())}"
        raise refuse(f"{called['y_test']} has the label {unseen[0]}; {valid}")
    notes += numbering(classes)
    arrays |= {"y_train": np.searchsorted(classes, train), "y_test": np.searchsorted(classes, test)}
    n_classes = check_arrays(arrays, called, refuse)
    images = np.concatenate([arrays["x_train"], arrays["x_test"]])
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    whose = np.concatenate(clients) if "client_train" in arrays else None
    of_file = *plain(images, labels), len(train), n_classes
    return Dataset("npz", *of_file, clients=whose, notes=tuple(notes))


def plain_values(values: np.ndarray, called: str, n: int, refuse: Refuse) -> np.ndarray:
    """Labels or names (n,) or (n, 1) of a user's as whole numbers, booleans or texts (n,).

    Raises:
        InputError: another shape or type, a fraction, or an empty text.
    """
    if values.shape not in ((n,), (n, 1)):
        remedy = f", as {called}.argmax(1) of one-hot rows" if values.shape[:1] == (n,) else ""
        raise refuse(
            f"{called} has shape {values.shape}; valid: one label an image, {(n,)}{remedy}"
        )
    values = values.reshape(n)
    if values.dtype.kind == "f":
        if not np.isfinite(values).all() or (values % 1 != 0).any():
            odd = values[~(np.isfinite(values) & (values % 1 == 0))][0]
            raise refuse(f"{called} has the value {odd}; valid: whole numbers, texts or booleans")
        values = values.astype(np.int64)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind not in "iubU":
        raise refuse(f"{called} has type {values.dtype}; valid: whole numbers, texts or booleans")
    if values.dtype.kind == "U" and (values == "").any():
        raise refuse(f"{called} has an empty text; valid: a name in each")
    return values


def numbering(classes: np.ndarray) -> list[str]:
    """A line on the numbers of classes that are not numbered from 0 already."""
    if classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(len(classes))):
        return []
    return [f"the labels {some_of(classes.tolist())} are the classes 0 to {len(classes) - 1}"]


def _named(file: str, refuse: Refuse) -> tuple[dict[str, np.ndarray], dict[str, str], list[str]]:
    """The arrays of a file by what they are (`_ARRAYS`), their names there, and what is not read.

    Raises:
        InputError: no such file, an array is missing, or two may be meant.
    """
    called: dict[str, str] = {}

    def meant(names: Sequence[str]) -> list[str]:
        listed = f"it has {some_of(list(names))}; valid: {', '.join(_ARRAYS)}"
        for name in names:
            if (role := _role(name)) and called.setdefault(role, name) != name:
                raise refuse(f"{called[role]} and {name} may both be {role}; {listed}")
        if absent := [role for role in _ARRAYS if role not in called]:
            others = "or words in their place, such as train_images, train_labels"
            raise refuse(f"lacks {', '.join(absent)}; {listed}, {others}")
        return list(called.values())

    found, rest = _stored(file, meant, refuse, "dataset.name=npz", _ARRAYS)
    notes = [f"of {file} nobody reads {some_of(rest)}"] if rest else []
    return {role: found[name] for role, name in called.items()}, called, notes


def _role(name: str) -> str | None:
    """What an array of a name is, `x_train` or another of `_ARRAYS` or `client_train`."""
    for kind, words in _KINDS.items():
        for split in ("train", "test"):
            of = f"{split}(?:ing)?"
            if re.fullmatch(f"(?:{of}[ ._-]*(?:{words})|(?:{words})[ ._-]*{of})", name.lower()):
                return f"{kind}_{split}"
    return None


def read_images(key: str, file: str, name: str) -> np.ndarray:
    """The images (N, H, W, C), uint8 or float32, under a name in a file `.npz` of a key's.

    Raises:
        InputError: no such file, it holds something else, or no image of it has any contrast.
    """
    refuse = partial(InputError, key, file)
    images = _stored(file, _exactly(refuse, name), refuse, key, (name,))[0][name]
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
    arrays, _ = _stored(file, _exactly(refuse, "x", "y"), refuse, key, ("x", "y"))
    check_images(arrays["x"], "x", refuse)
    check_labels("y", arrays["y"], arrays["x"], refuse)
    if arrays["y"].min() < 0 or arrays["y"].max() >= n_classes:
        raise refuse(f"y has labels beyond 0 to {n_classes - 1}, the plan's")
    return plain(arrays["x"], arrays["y"])


def is_file(file: str) -> bool:
    """Whether there is a file of that name; not where the name itself can't be one."""
    return os.path.isfile(os.path.expanduser(file))


def _exactly(refuse: Refuse, *needed: str) -> Chosen:
    """Chooses arrays of these names."""

    def chosen(names: Sequence[str]) -> Sequence[str]:
        if absent := [name for name in needed if name not in names]:
            raise refuse(f"lacks {', '.join(absent)}; needs {', '.join(needed)}")
        return needed

    return chosen


def _stored(
    file: str, chosen: Chosen, refuse: Refuse, what: str, needed: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays of a file that are chosen of all names, by name, and the names of the others."""
    path, listed = os.path.expanduser(file), ", ".join(needed)
    if not is_file(file):
        plural = "arrays" if len(needed) > 1 else "array"
        raise refuse(f"no such file; {what} needs a .npz file with the {plural} {listed}")
    try:
        with open(path, "rb") as content:
            begins = content.read(4)
        if not begins.startswith(b"PK"):
            raise ValueError(f"it is {_OTHERS.get(begins, 'another kind of file')}")
        with np.load(path) as archive:
            names = chosen(archive.files)
            rest = [name for name in archive.files if name not in names]
            return {name: archive[name] for name in names}, rest
    except InputError:
        raise
    except (ValueError, OSError, EOFError, BadZipFile, zlib.error, TypeError) as error:
        problem = f"not a readable .npz file, as np.savez writes arrays ({one_line(error)})"
        raise refuse(problem) from error


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
