"""Where records come from: scikit-learn's digits, or what rooms bring."""

from collections.abc import Callable
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.own_code import OWN, is_own
from m2fdp.core.rooms import Catalogue

# Functions from the block `dataset`, a folder to unpack archives in, and the run's seed.
SOURCES: Catalogue[Callable[[DatasetConfig, Path, int], Dataset]] = Catalogue(
    "datasets", {"digits": "m2fdp.core.data.sources:digits"}
)
# The number of classes of every data set that has a fixed one.
N_CLASSES = dict.fromkeys(("digits", "fashion_mnist", "mnist", "cifar10"), 10) | {
    "emnist_letters": 26,
    "cifar100": 100,
}
_DIGITS = "sklearn/datasets/data/digits.csv.gz"
DEFAULT_ROOT = Path(DatasetConfig.model_fields["root"].default)


def load_dataset(config: DatasetConfig, unpack_root: Path = DEFAULT_ROOT, seed: int = 0) -> Dataset:
    """The data set that the configuration names, training records first.

    Args:
        unpack_root: folder for unpacked archives where the root may not be written to.
        seed: keys what is drawn, such as who is a test record where nothing says.

    Raises:
        InputError: files are missing, damaged or not as named, or own code makes no data set.
    """
    read = OWN["dataset.name"] if is_own(config.name) else SOURCES[config.name]
    dataset: Dataset = read(config, unpack_root, seed)
    return dataset


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
