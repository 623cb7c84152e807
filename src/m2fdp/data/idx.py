"""MNIST and Fashion-MNIST as torchvision lays them out and reads them, without torchvision, whose
import takes longer than to read them.

What they are called and their MD5s are torchvision's own (`tests/data/test_idx.py`).
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Data set -> its folder, which is also its class in torchvision.
FOLDERS = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}
# Data set -> its archives with their MD5s.
ARCHIVES = {
    "mnist": (
        ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "fashion_mnist": (
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
}
_UNSIGNED_BYTES = 8  # the format's name for them


class Records(NamedTuple):
    """What torchvision's data sets have.

    Attributes:
        data: uint8 (n, height, width).
        targets: uint8 (n,).
    """

    data: np.ndarray
    targets: np.ndarray


def read_records(folder: Path, train: bool) -> Records:
    """The training or the test records of an unpacked data set.

    Args:
        folder: with the files.

    Raises:
        OSError: a file can't be read.
        ValueError: a file is not what its name says.
    """
    part = "train" if train else "t10k"
    data = _read(folder / f"{part}-images-idx3-ubyte", dimensions=3)
    return Records(data, _read(folder / f"{part}-labels-idx1-ubyte", dimensions=1))


def _read(path: Path, dimensions: int) -> np.ndarray:
    """An array in the MNIST family's format: its type, its shape, its bytes."""
    content = path.read_bytes()
    start = 4 * (1 + dimensions)
    if content[:4] != bytes([0, 0, _UNSIGNED_BYTES, dimensions]) or len(content) < start:
        raise ValueError(f"{path.name} holds no unsigned bytes of {dimensions} dimensions")
    shape = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4).tolist()
    if len(content) - start != prod(shape):
        raise ValueError(f"{path.name} holds {len(content) - start} bytes, not {prod(shape)}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
