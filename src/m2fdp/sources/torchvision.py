"""torchvision's data sets.

With `download: false` nothing uses the network or writes to `dataset.root`. torchvision unpacks
only when it is asked to download. So archives are checked against its MD5s first, and then unpacked
through links in a temporary folder: torchvision finds them right and stays off the network. Only
whole files leave that folder, by renaming. No run ever sees half a file.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from hashlib import file_digest, md5
from http.client import HTTPException
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.sources import N_CLASSES
from m2fdp.core.errors import InputError, one_line

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def import_datasets() -> ModuleType:
    """`torchvision.datasets`, also beside a build of torch that can't load compiled operators.

    Importing torchvision stops there for want of the schemas of two operators. Declaring them is
    enough for data sets, transforms and models; the operators themselves stay unusable.
    """
    if "torchvision" not in sys.modules and not _compiled_operators_load():
        _declare_operators()
    from torchvision import datasets

    return datasets


@cache
def _declare_operators() -> torch.library.Library:
    """The cache keeps the library alive: its schemas vanish with it."""
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(operator + _BOXES)
    return library


def _compiled_operators_load() -> bool:
    # Finding a top-level package's spec does not execute the package.
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return False
    files = (Path(spec.origin).with_name(f"_C{suffix}") for suffix in EXTENSION_SUFFIXES)
    try:
        torch.ops.load_library(next(file for file in files if file.is_file()))
    except (OSError, StopIteration):
        return False
    return True


@dataclass(frozen=True)
class _Source:
    """One of torchvision's data sets and the files, relative to its root, that it works with.

    Attributes:
        open: (root, train=…, download=…) -> torchvision's data set.
        unpacked: the files it reads.
        archives: the files it downloads, with their MD5s.
    """

    open: Callable[..., Any]
    unpacked: tuple[str, ...]
    archives: tuple[tuple[str, str], ...]

    def is_unpacked_in(self, root: Path) -> bool:
        return all((root / file).is_file() for file in self.unpacked)

    def damaged_in(self, root: Path) -> list[str]:
        """The archives in the root that are not, byte for byte, those torchvision expects."""
        there = [(file, digest) for file, digest in self.archives if (root / file).is_file()]
        return [file for file, digest in there if _md5(root / file) != digest]

    def is_archived_in(self, root: Path) -> bool:
        present = all((root / file).is_file() for file, _ in self.archives)
        return present and not self.damaged_in(root)


def _source(name: str, datasets: ModuleType) -> _Source:
    match name:
        case "mnist" | "fashion_mnist":
            loader = datasets.MNIST if name == "mnist" else datasets.FashionMNIST
            archives = [(f"{loader.__name__}/raw/{file}", sum_) for file, sum_ in loader.resources]
            unpacked = [file.removesuffix(".gz") for file, _ in archives]
        case "emnist_letters":
            loader = partial(datasets.EMNIST, split="letters")
            archives = [("EMNIST/raw/gzip.zip", datasets.EMNIST.md5)]
            kinds = "train-images-idx3 train-labels-idx1 test-images-idx3 test-labels-idx1"
            unpacked = [f"EMNIST/raw/emnist-letters-{kind}-ubyte" for kind in kinds.split()]
        case _:
            loader = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
            archives = [(loader.filename, loader.tgz_md5)]
            batches = [file for file, _ in loader.train_list + loader.test_list]
            unpacked = [f"{loader.base_folder}/{b}" for b in [*batches, loader.meta["filename"]]]
    return _Source(loader, tuple(unpacked), tuple(archives))


def read_torchvision(config: DatasetConfig, unpack_root: Path, seed: int = 0) -> Dataset:
    """The data set of torchvision's that the configuration names.

    Raises:
        InputError: for files that are missing or damaged.
    """
    source = _source(config.name, import_datasets())
    root = _locate(source, config, unpack_root)
    try:
        return _read(source, config.name, root)
    except (OSError, RuntimeError, ValueError, TypeError, AssertionError, KeyError) as error:
        raise InputError(
            "dataset.root",
            config.root,
            f"the {config.name} files in {root.absolute()} are damaged ({one_line(error)}); "
            f"replace {', '.join(source.unpacked)}, or remove them and set dataset.download=true",
        ) from error


def _read(source: _Source, name: str, root: Path) -> Dataset:
    train, test = (source.open(root, train=is_train) for is_train in (True, False))
    images = np.concatenate([np.asarray(train.data), np.asarray(test.data)])
    labels = np.concatenate([np.asarray(train.targets), np.asarray(test.targets)])
    if name == "emnist_letters":
        # The files hold every image transposed, and count the letters from 1.
        images, labels = images.swapaxes(1, 2), labels - 1
    if len(train.data) != len(train.targets) or len(test.data) != len(test.targets):
        raise ValueError("images and labels differ in number")
    if labels.min() < 0 or labels.max() >= N_CLASSES[name]:
        raise ValueError(f"a label is not one of the {N_CLASSES[name]} classes")
    images = np.ascontiguousarray(images if images.ndim == 4 else images[..., None])
    return Dataset(name, images, labels.astype(np.int64), len(train.targets), N_CLASSES[name])


def _locate(source: _Source, config: DatasetConfig, unpack_root: Path) -> Path:
    """The folder that holds the unpacked files, after downloading or unpacking them if need be."""
    refuse = partial(InputError, "dataset.root", config.root)
    root = Path(os.path.expanduser(config.root))  # of a user that there is not, as it stands
    if source.is_unpacked_in(root):
        return root
    if config.download:
        try:
            _unpack(source, archives=root, target=root)
        except (OSError, RuntimeError, HTTPException) as error:
            raise InputError(
                "dataset.download",
                True,
                f"could not download {config.name} into {root.absolute()} ({one_line(error)}); "
                f"copy {', '.join(source.unpacked)} there, or try again",
            ) from error
        return root
    if not source.is_archived_in(root):
        absent = [file for file in source.unpacked if not (root / file).is_file()]
        damaged = source.damaged_in(root)
        archives = f"the archives {', '.join(file for file, _ in source.archives)}"
        raise refuse(
            f"{', '.join(absent)} not found in {root.absolute()}; set dataset.download=true, or "
            f"copy there these files or {archives}"
            + (f" (its {', '.join(damaged)} has the wrong MD5)" if damaged else "")
        )
    if not source.is_unpacked_in(unpack_root):
        try:
            _unpack(source, archives=root, target=unpack_root)
        except OSError as error:
            raise refuse(
                f"holds only archives, which could not be unpacked into {unpack_root.absolute()} "
                f"({one_line(error)}); make room there, or unpack them yourself"
            ) from error
    return unpack_root


def _unpack(source: _Source, archives: Path, target: Path) -> None:
    """Put the unpacked files below `target`; sound archives are used, others downloaded."""
    target.mkdir(parents=True, exist_ok=True)
    damaged = source.damaged_in(archives)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=target) as name:
        folder = Path(name)
        for file, _ in source.archives:
            if (archives / file).is_file() and file not in damaged:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).symlink_to((archives / file).resolve())
        source.open(folder, download=True)
        for file in source.unpacked:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(folder / file, target / file)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, partial(md5, usedforsecurity=False)).hexdigest()
