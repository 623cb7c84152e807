"""scikit-learn's digits, which need no download."""

from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.sources import N_CLASSES

_DIGITS = "sklearn/datasets/data/digits.csv.gz"


def digits(config: DatasetConfig, unpack_root: Path, seed: int = 0) -> Dataset:
    """scikit-learn's 8x8 digits, 17 grey levels; every fifth record is a test record."""
    table = _read_digits()
    is_test = np.arange(len(table)) % 5 == 4
    order = np.argsort(is_test, kind="stable")
    images = (table[order, :-1].reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    labels, n_train = table[order, -1].astype(np.int64), int((~is_test).sum())
    return Dataset("digits", images, labels, n_train, N_CLASSES["digits"], known_scale=True)


@cache
def _read_digits() -> np.ndarray:
    """The file of scikit-learn, whose import takes longer than a round: 64 pixels, label a line."""
    try:
        table = np.loadtxt(str(distribution("scikit-learn").locate_file(_DIGITS)), delimiter=",")
    except OSError:
        from sklearn.datasets import load_digits  # a version that keeps them elsewhere

        table = np.column_stack(load_digits(return_X_y=True))
    table.setflags(write=False)  # all share it
    return table
