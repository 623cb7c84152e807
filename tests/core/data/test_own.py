"""Data sets and partitioners of a user's own, found in the project's root."""

import sys

import numpy as np
import pandas as pd
import pytest

from m2fdp import load_config
from m2fdp.core.config import DatasetConfig, PartitionConfig
from m2fdp.core.data.partitioners import partition
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config

DATA = """
import numpy as np
from m2fdp.core.data.dataset import Dataset

def stripes(config):
    rng = np.random.default_rng(len(config.root))
    labels = np.arange(80) % 4
    images = np.zeros((80, 6, 6, 1))
    images[np.arange(80), labels] = 1
    return Dataset("any", images, labels.astype(np.int32), 60, 4)

def grey():
    return Dataset("any", np.zeros((9, 4, 4), dtype=np.uint8), np.arange(9) % 2, 6, 2)
"""
SCHEMES = """
import numpy as np

def sorted_by_label(labels, n_classes, edge_of_device, rng):
    labels += 0
    order = np.lexsort((rng.permutation(len(labels)), labels))
    device = np.empty(len(labels), dtype=np.int32)
    device[order] = np.arange(len(labels)) * len(edge_of_device) // len(labels)
    return device

def some(labels, n_classes, edge_of_device, rng, partition):
    device = np.arange(len(labels)) % len(edge_of_device)
    device[labels >= partition.labels_per_device] = -1
    return device

def as_list(labels, n_classes, edge_of_device, rng):
    return [0, 1] * (len(labels) // 2)
"""
EDGES = np.repeat(np.arange(2), 3)
LABELS = np.arange(60) % 4


@pytest.fixture(autouse=True)
def own_modules(tmp_path, monkeypatch):
    (tmp_path / "own_data.py").write_text(DATA)
    (tmp_path / "own_schemes.py").write_text(SCHEMES)
    monkeypatch.chdir(tmp_path)
    yield
    for name in ("own_data", "own_schemes"):
        sys.modules.pop(name, None)


def test_an_own_data_set_has_the_name_and_types_of_all_others():
    dataset = load_dataset(DatasetConfig(name="own_data:stripes"))
    assert (dataset.name, dataset.n_train, dataset.n_classes) == ("own_data:stripes", 60, 4)
    assert dataset.images.shape == (80, 6, 6, 1) and dataset.images.dtype == np.float32
    assert dataset.labels.dtype == np.int64
    grey = load_dataset(DatasetConfig(name="own_data:grey"))
    assert grey.images.shape == (9, 4, 4, 1) and grey.images.dtype == np.uint8


def deal(function, labels=LABELS, seed=0, **changes):
    config = PartitionConfig(scheme=f"own_schemes:{function}", **changes)
    return partition(labels, 4, config, EDGES, seed)


def test_an_own_partitioner_deals_by_the_seed_and_leaves_the_labels_alone():
    labels = LABELS.copy()
    device = deal("sorted_by_label", labels)
    assert device.dtype == np.int64 and np.array_equal(labels, LABELS)
    assert np.bincount(device).tolist() == [10] * 6
    assert (pd.Series(LABELS).groupby(device).nunique() <= 2).all()
    assert np.array_equal(device, deal("sorted_by_label"))
    assert not np.array_equal(device, deal("sorted_by_label", seed=1))


def test_it_may_leave_records_out_is_capped_and_gives_every_device_some():
    assert np.array_equal(deal("some", labels_per_device=2) == -1, LABELS >= 2)
    device = deal("sorted_by_label", samples_per_device=4)
    assert np.bincount(device[device >= 0]).tolist() == [4] * 6
    with pytest.raises(InputError, match="own_schemes:as_list': device 2 would hold no record"):
        deal("as_list")


@pytest.mark.parametrize(
    ("key", "value", "chosen", "with_block", "without"),
    [
        ("partition.alpha", 2.0, "partition.scheme", "own_schemes:some", "own_schemes:as_list"),
        ("dataset.root", "elsewhere", "dataset.name", "own_data:stripes", "own_data:grey"),
    ],
)
def test_keys_are_read_by_own_code_that_takes_the_block(key, value, chosen, with_block, without):
    check_config(load_config({chosen: with_block, key: value}))
    with pytest.raises(InputError, match=f"{key} = {value!r}: belongs to"):
        check_config(load_config({chosen: without, key: value}))
