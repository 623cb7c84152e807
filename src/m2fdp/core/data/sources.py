"""Where records come from: what rooms bring, or a user's own code."""

from collections.abc import Callable
from pathlib import Path

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.own_code import OWN, is_own
from m2fdp.core.rooms import Catalogue

# Functions from the block `dataset`, a folder to unpack archives in, and the run's seed.
SOURCES: Catalogue[Callable[[DatasetConfig, Path, int], Dataset]] = Catalogue("datasets", {})
# The number of classes of every data set that has a fixed one.
N_CLASSES = dict.fromkeys(("digits", "fashion_mnist", "mnist", "cifar10"), 10) | {
    "emnist_letters": 26,
    "cifar100": 100,
}
DEFAULT_ROOT = Path(DatasetConfig.model_fields["root"].default)


def load_dataset(config: DatasetConfig, unpack_root: Path = DEFAULT_ROOT, seed: int = 0) -> Dataset:
    """The data set that the configuration names, training records first. Archives are unpacked in
    another folder where the root may not be written to. The seed keys what a source draws.

    Raises:
        InputError: files are missing, damaged or not as named, or own code makes no data set.
    """
    read = OWN["dataset.name"] if is_own(config.name) else SOURCES[config.name]
    dataset: Dataset = read(config, unpack_root, seed)
    return dataset
