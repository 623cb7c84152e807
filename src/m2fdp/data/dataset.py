"""Labelled arrays in memory, numbered as the manifest numbers them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set: the training records first, then the test records.

    Attributes:
        name: its configuration name.
        images: (N, H, W, C), uint8 or float32, training records before test records.
        labels: (N,), int64, in 0…n_classes-1.
        n_train: how many of the N are training records.
        n_classes: the number of classes.
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    n_train: int
    n_classes: int
