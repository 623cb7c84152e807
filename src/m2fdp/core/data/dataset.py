"""Labelled arrays in memory, numbered as the manifest numbers them."""

from dataclasses import dataclass, replace

import numpy as np

# Pixels below it have squares that float32 hardly holds.
_DARK = 1e-9
_TENTHS = 10  # of a range of numbers


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set: the training records first, then the test records.

    Attributes:
        name: its configuration name.
        images: (N, H, W, C), uint8 or float32.
        labels: (N,), int64, in 0…n_classes-1; or float32, in [-1, 1], numbers on `label_range`.
        n_train: how many of the N are training records.
        known_scale: whether floats are known to have been scaled by constants.
        doubt: what else epsilon rests on, as a sentence; empty = nothing.
        clients: (N,), the name of the device that each record is of; None where nobody says.
        notes: what became of records that is not as one may think, a line each.
        label_range: what -1 and 1 stand for, where labels are numbers; n_classes is then 1.
        metrics: names of what is measured where `training.metrics` names none.
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    n_train: int
    n_classes: int
    known_scale: bool = False
    doubt: str = ""
    clients: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    label_range: tuple[float, float] | None = None
    metrics: tuple[str, ...] = ()

    @property
    def n_strata(self) -> int:
        """How many strata there are."""
        return self.n_classes if self.label_range is None else _TENTHS

    def strata(self, labels: np.ndarray) -> np.ndarray:
        """What splits and counts take for labels or answers (n,): int64, the classes, or of numbers
        the tenth of their range, from 0."""
        return labels if self.label_range is None else tenths(labels)

    def in_units(self, values: np.ndarray) -> np.ndarray:
        """Labels or scores as float64 in the units of `label_range`, where there is one."""
        return values if self.label_range is None else unscaled(values, self.label_range)

    @property
    def scaled_by_constants(self) -> bool:
        """Whether no record says by its scale anything of another: uint8 is scaled by 255 here, and
        labels that are numbers by whoever has given their range."""
        return self.known_scale or (self.images.dtype == np.uint8 and self.label_range is None)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image, as the models take it."""
        height, width, channels = self.images.shape[1:]
        return channels, height, width


def unscaled(values: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """What values (n,), in which -1 and 1 stand for two bounds, stand for: float64 (n,)."""
    low, high = bounds
    return low + (high - low) / 2 * (values.astype(np.float64) + 1)


def tenths(labels: np.ndarray) -> np.ndarray:
    """The tenth of [-1, 1] that each label (n,) lies in, int64 from 0."""
    return (_TENTHS / 2 * (labels + 1)).clip(0, _TENTHS - 1).astype(np.int64)


def of_unit_norm(dataset: Dataset) -> Dataset:
    """The data set with every image, float32, over its own length; zero stays zero.

    A function of one record alone: neighbouring data sets stay neighbours.
    """
    images = dataset.images.astype(np.float32)  # a copy
    for image in images:
        if image.any():
            # Squares of what is very dark vanish in float32, and the length with them.
            dark = np.abs(image).max() < _DARK
            exact = image.astype(np.float64) if dark else image
            image[:] = exact / float(np.linalg.norm(exact))
    return replace(dataset, images=images)


def features(images: np.ndarray) -> np.ndarray:
    """Images (n, H, W, C) as the models' inputs: float32 (n, C, H, W), in [0, 1].

    Scaled by a fixed constant only; statistics of private pixels would be a release.
    """
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32)
    if images.dtype == np.uint8:  # so the line above has made a copy
        channels_first /= 255
    return channels_first
