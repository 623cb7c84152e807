"""Unpacked MNIST files, read without torchvision and as torchvision reads them."""

import subprocess
import sys

import numpy as np
import pytest

from m2fdp.data import idx
from m2fdp.data.torchvision_ops import import_datasets

SHAPES = {"train": (6, 4, 3), "t10k": (2, 4, 3)}


@pytest.fixture
def root(tmp_path):
    """Random records in torchvision's layout, of both data sets."""
    draw = np.random.default_rng(4)
    for folder in idx.FOLDERS.values():
        raw = tmp_path / folder / "raw"
        raw.mkdir(parents=True)
        for part, shape in SHAPES.items():
            write(raw / f"{part}-images-idx3-ubyte", draw.integers(0, 256, shape))
            write(raw / f"{part}-labels-idx1-ubyte", draw.integers(0, 10, shape[0]))
    return tmp_path


def write(path, array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes())


@pytest.mark.parametrize("name", idx.FOLDERS)
def test_names_and_sums_are_torchvisions(name):
    theirs = getattr(import_datasets(), idx.FOLDERS[name])
    assert theirs.resources == list(idx.ARCHIVES[name])


@pytest.mark.parametrize("name", idx.FOLDERS)
@pytest.mark.parametrize("train", [True, False])
def test_records_are_torchvisions(root, name, train):
    folder = idx.FOLDERS[name]
    theirs = getattr(import_datasets(), folder)(root, train=train)
    ours = idx.read_records(root / folder / "raw", train)
    assert ours.data.tobytes() == np.asarray(theirs.data).tobytes()
    assert ours.data.shape == tuple(theirs.data.shape)
    assert ours.targets.tolist() == theirs.targets.tolist()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes([0, 0, 8, 1]),
        bytes([0, 0, 8, 1, 0, 0, 0, 5]) + b"abc",
        bytes([0, 0, 8, 1, 0, 0, 0, 2]) + b"abc",
        bytes([0, 0, 9, 1, 0, 0, 0, 3]) + b"abc",
        bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3]) + b"abc",
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(root, content):
    raw = root / "MNIST" / "raw"
    (raw / "t10k-labels-idx1-ubyte").write_bytes(content)
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte"):
        idx.read_records(raw, train=False)


def test_they_need_no_torchvision(root):
    code = f"""
import sys
from m2fdp.config import DatasetConfig
from m2fdp.data.sources import load_dataset
dataset = load_dataset(DatasetConfig(name="mnist", root={str(root)!r}))
print(len(dataset.labels), "torchvision" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["8", "False"]
