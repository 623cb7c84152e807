"""CIFAR-10's official archive as one file of arrays, which `dataset.name: npz` reads.

python -m tools.cifar10 cifar-10-python.tar.gz cifar10.npz

The archive is https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz, of the MD5 below.
"""

import hashlib
import pickle
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from m2fdp.core.errors import InputError

MD5 = "c58f30108f718f92721af3b95e74349a"
_BATCHES = {"train": [f"data_batch_{n}" for n in range(1, 6)], "test": ["test_batch"]}


def arrays(archive: Path, md5: str = MD5) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test and y_test: uint8 (n, 32, 32, 3) and (n,).

    Raises:
        InputError: another file; it holds pickles, which may run any code.
    """
    if hashlib.md5(archive.read_bytes(), usedforsecurity=False).hexdigest() != md5:
        raise InputError("archive", str(archive), f"is not CIFAR-10's, whose MD5 is {md5}")
    found: dict[str, np.ndarray] = {}
    with tarfile.open(archive) as files:
        for part, names in _BATCHES.items():
            batches = [_batch(files, name) for name in names]
            images = np.concatenate([np.asarray(batch[b"data"], np.uint8) for batch in batches])
            found[f"x_{part}"] = images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            labels = [label for batch in batches for label in batch[b"labels"]]
            found[f"y_{part}"] = np.array(labels, np.uint8)
    return found


def _batch(files: tarfile.TarFile, name: str) -> dict[bytes, Any]:
    file = files.extractfile(f"cifar-10-batches-py/{name}")
    assert file is not None
    content: dict[bytes, Any] = pickle.load(file, encoding="bytes")
    return content


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    np.savez(sys.argv[2], **arrays(Path(sys.argv[1])))  # type: ignore[arg-type]
