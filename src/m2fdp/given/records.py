"""What arrays of a user must be to stand for records."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError

# What images have: grey, colour, colour and alpha.
_CHANNELS = (1, 3, 4)
MOST_CLASSES = 100_000  # lest one wild number stand for millions of parameters
# How far pixels may lie beyond 0 and 1 by rounding alone; such are put on the border.
_ROUNDING = 1e-6
Refuse = Callable[[str], InputError]


def checked(dataset: Dataset) -> Dataset:
    """A data set given in Python, checked like one that is read; it may lack test records, and
    training records of a class.

    Raises:
        InputError: images that are none in [0, 1], or labels that are none of its classes'.
    """
    if not isinstance(dataset, Dataset):
        # A line has no room for the values.
        raise InputError("dataset", type(dataset).__name__, f"is no {Dataset.__module__}.Dataset")
    refuse = partial(InputError, "dataset", dataset.name)
    if not isinstance(dataset.name, str):
        raise refuse("is no name; valid: a text")
    check_records(dataset, refuse, least=0)
    images, labels, n_classes = dataset.images, dataset.labels, dataset.n_classes
    least = -1 if dataset.known_scale else 0
    check_images(images, "images", refuse, least)
    if dataset.label_range is not None:
        check_numbers(dataset, refuse)
        return replace(dataset, images=plain(images, labels, least)[0])
    check_labels("labels", labels, images, refuse)
    low, high = labels.min(), labels.max()
    if not is_whole(n_classes) or low < 0 or high >= n_classes:
        found = f"has n_classes = {n_classes!r} and labels from {low} to {high}"
        raise refuse(f"{found}; valid: 0 to n_classes - 1")
    if not 2 <= n_classes <= MOST_CLASSES:
        problem = ", so that every answer is right" if n_classes == 1 else ""
        valid = f"valid: 2 to {MOST_CLASSES:,} classes"
        raise refuse(f"has n_classes = {n_classes}{problem}; {valid}")
    images, labels = plain(images, labels, least)
    if images is dataset.images and labels is dataset.labels:
        return dataset
    return replace(dataset, images=images, labels=labels)


def check_records(dataset: Dataset, refuse: Refuse, least: int = 1) -> None:
    """Refuse a data set without one label an image and `n_train` of them to be trained on.

    Args:
        least: the fewest training records and test records.
    """
    for field in ("images", "labels"):
        value = getattr(dataset, field)
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
            raise refuse(f"has {field} of type {type(value).__name__}; valid: a NumPy array")
    n = len(dataset.labels) if dataset.labels.ndim else 0
    if not is_whole(dataset.n_train) or not least <= dataset.n_train <= n - least:
        valid = f"{least} to {n - least}{', less than all records' if least else ''}"
        raise refuse(f"has n_train = {dataset.n_train!r}; valid: {valid}")
    if dataset.images.ndim == 0 or len(dataset.images) != n:
        raise refuse(f"has {dataset.images.shape} images for {n} labels; valid: one label an image")


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, and no bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def plain(
    images: np.ndarray, labels: np.ndarray, least: float = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Checked images as (N, H, W, C), uint8 or float32, and labels as int64."""
    kind = np.uint8 if images.dtype == np.uint8 else np.float32
    images = (images if images.ndim == 4 else images[..., None]).astype(kind, copy=False)
    if kind is np.float32 and (images.min() < least or images.max() > 1):
        images = images.clip(least, 1)
    return images, labels.astype(np.int64, copy=False)


def check_images(x: np.ndarray, called: str, refuse: Refuse, least: float = 0) -> None:
    """Refuse arrays that are no images."""
    if x.ndim not in (3, 4) or 0 in x.shape:
        raise refuse(f"{called} has shape {x.shape}; valid: NxHxW or NxHxWxC, none of them 0")
    if x.ndim == 4 and x.shape[3] not in _CHANNELS and x.shape[1] in _CHANNELS:
        remedy = f"valid: NxHxWxC, as {called}.transpose(0, 2, 3, 1) makes it"
        raise refuse(f"{called} has shape {x.shape}, with channels first; {remedy}")
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise refuse(f"{called} has type {x.dtype}; valid: uint8, or floats in [0, 1]")
    low, high = x.min(), x.max()
    if np.isnan(low):
        raise refuse(f"{called} has pixels that are nan, no number; valid: floats in [0, 1]")
    if x.dtype.kind == "f" and not (low >= least - _ROUNDING and high <= 1 + _ROUNDING):
        valid = "valid: floats in [0, 1], scaled by a constant, or uint8"
        raise refuse(f"{called} ranges from {low:.9g} to {high:.9g}; {valid}")


def check_numbers(dataset: Dataset, refuse: Refuse) -> None:
    """Refuse labels that are no numbers in [-1, 1], one an image."""
    y, shape = dataset.labels, dataset.images.shape[:1]
    if y.shape != shape or y.dtype != np.float32 or not (np.abs(y) <= 1).all():
        valid = f"valid: float32 from -1 to 1, of shape {shape}"
        raise refuse(f"has a label_range and labels of {y.dtype} and shape {y.shape}; {valid}")
    if dataset.n_classes != 1:
        raise refuse(f"has a label_range and n_classes = {dataset.n_classes!r}; valid: 1")


def check_labels(called: str, y: np.ndarray, x: np.ndarray, refuse: Refuse) -> None:
    """Refuse arrays that are no labels of the images."""
    if y.shape != x.shape[:1]:
        raise refuse(f"{called} has shape {y.shape}; valid: one label an image, {x.shape[:1]}")
    if y.dtype.kind not in "iu":
        raise refuse(f"{called} has type {y.dtype}; valid: integers")
