"""The manifest: complete, ordered, reproducible, and the views on it that training uses."""

import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from m2fdp.core.config import DatasetConfig, PartitionConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.manifest import held_by_cloud, held_out, make_manifest, shards_of
from m2fdp.core.data.partitioners import Names
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.given.splits import check_manifest
from m2fdp.pipelines.data import label_counts

FIFTY = np.repeat(np.arange(10), 5)
FIFTY_NAMES = Names.numbered(FIFTY.tolist())


@pytest.fixture(scope="module")
def digits():
    return load_dataset(DatasetConfig())


def dataset_of(labels, n_train):
    labels = np.asarray(labels, dtype=np.int64)
    images = np.zeros((len(labels), 1, 1, 1), dtype=np.uint8)
    return Dataset("npz", images, labels, n_train, int(labels.max()) + 1)


def test_a_manifest_worked_by_hand():
    """Six training records of two classes, two devices of one class each, two test records."""
    data = dataset_of([0, 1, 0, 1, 0, 1, 1, 0], n_train=6)
    manifest = make_manifest(data, PartitionConfig(labels_per_device=1), np.array([0, 0]), 0)
    classes = manifest.groupby("device")["label"].unique()
    first = classes[0][0]
    zeros, ones = [0, 2, 4], [1, 3, 5]
    expected = pd.DataFrame(
        {
            "dataset": "npz",
            "sample": (ones + zeros if first else zeros + ones) + [6, 7],
            "split": ["train"] * 6 + ["test"] * 2,
            "label": [first] * 3 + [1 - first] * 3 + [1, 0],
            "device": [0, 0, 0, 1, 1, 1, -1, -1],
        }
    )
    pd.testing.assert_frame_equal(manifest, expected)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 0.5), st.none() | st.integers(3, 20), st.integers(0, 10**6))
def test_validation_records_keep_the_label_mix_and_leave_the_devices(fraction, cap, seed):
    data = dataset_of(np.arange(1200) % 10, n_train=1000)
    config = PartitionConfig(validation_fraction=fraction, samples_per_device=cap)
    manifest = make_manifest(data, config, FIFTY, seed)
    validation = held_by_cloud(manifest, "validation")
    assert len(validation) == round(1000 * fraction)
    per_class = np.bincount(data.labels[validation], minlength=10)
    assert np.ptp(per_class) <= 1
    assert manifest["sample"].is_unique
    order = manifest.assign(split=manifest["split"].map(["train", "validation", "test"].index))
    pd.testing.assert_frame_equal(order, order.sort_values(["split", "device", "sample"]))
    shards = shards_of(manifest)
    assert len(shards.sizes) == 50
    if cap is None:
        assert len(shards.samples) == 1000 - len(validation)
    else:
        assert shards.sizes.max() <= cap


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 0.5), st.none() | st.integers(3, 20), st.integers(0, 10**6))
def test_what_devices_hold_out_of_their_own_is_where_it_would_be_trained_on(fraction, cap, seed):
    data = dataset_of(np.arange(1200) % 10, n_train=1000)
    released = make_manifest(data, PartitionConfig(samples_per_device=cap), FIFTY, seed)
    config = PartitionConfig(
        validation_fraction=fraction, samples_per_device=cap, held_out_by="devices"
    )
    searched = make_manifest(data, config, FIFTY, seed)
    holders = (each.set_index("sample")["device"].sort_index() for each in (released, searched))
    pd.testing.assert_series_equal(*holders)
    samples, devices = held_out(searched, "validation")
    assert (devices >= 0).all() and not len(held_by_cloud(searched, "validation"))
    assert abs(len(samples) - fraction * (released["split"] == "train").sum()) < 60
    order = searched.assign(split=searched["split"].map(["train", "validation", "test"].index))
    pd.testing.assert_frame_equal(order, order.sort_values(["split", "device", "sample"]))


def test_label_sets_do_not_depend_on_the_validation_share(digits):
    plain, held_out = (
        label_counts(make_manifest(digits, PartitionConfig(validation_fraction=f), FIFTY, 4)) > 0
        for f in (0.0, 0.2)
    )
    pd.testing.assert_frame_equal(plain, held_out)


def test_shards_and_counts_survive_a_file_and_any_row_order(digits):
    manifest = make_manifest(digits, PartitionConfig(validation_fraction=0.1), FIFTY, 0)
    text = manifest.to_csv(index=False)
    assert text == make_manifest(digits, PartitionConfig(validation_fraction=0.1), FIFTY, 0).to_csv(
        index=False
    )
    read = pd.read_csv(io.StringIO(text)).sample(frac=1, random_state=0)
    shards, shards_read = shards_of(manifest), shards_of(read)
    np.testing.assert_array_equal(shards.samples, shards_read.samples)
    np.testing.assert_array_equal(shards.offsets, shards_read.offsets)
    table = label_counts(read)
    assert table.shape == (50, 10)
    for j in (0, 17, 49):
        mine = shards.samples[shards.offsets[j] : shards.offsets[j + 1]]
        assert (manifest.set_index("sample").loc[mine, "device"] == j).all()
        np.testing.assert_array_equal(table.loc[j], np.bincount(digits.labels[mine], minlength=10))


def test_label_counts_have_a_column_for_a_class_that_no_device_holds():
    manifest = pd.DataFrame(
        {
            "dataset": "npz",
            "sample": [0, 1, 2],
            "split": ["train", "train", "test"],
            "label": [0, 2, 3],
            "device": [0, 1, -1],
        }
    )
    assert label_counts(manifest).to_numpy().tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]


def test_a_validation_share_of_no_record_is_refused():
    data = dataset_of(np.arange(12) % 2, n_train=10)
    with pytest.raises(InputError, match=r"validation_fraction = 0.01: .*at least 0.1"):
        make_manifest(data, PartitionConfig(validation_fraction=0.01), np.array([0]), 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table, row: {"device": 1 + table["device"][row]}, "device 0, device 1: "),
        (lambda table, row: {}, "device 0, device 0: "),
        (lambda table, row: {"device": -1, "split": "test"}, r"device 0, the cloud \(test\): "),
    ],
)
def test_a_given_split_that_has_a_record_twice_is_refused(digits, change, words):
    """Two devices with one sample would both move by it, and the ledger counts one."""
    manifest = make_manifest(digits, PartitionConfig(), FIFTY, 0)
    check_manifest(manifest, digits, FIFTY_NAMES)
    changed_row = manifest.loc[[0]].assign(**change(manifest, 0))
    doubled = pd.concat([manifest, changed_row], ignore_index=True)
    with pytest.raises(
        InputError, match=f"= 'sample {manifest['sample'][0]}': is dealt to {words}"
    ):
        check_manifest(doubled, digits, FIFTY_NAMES)


def test_a_manifest_whose_held_out_records_others_hold_is_refused(digits):
    config = PartitionConfig(validation_fraction=0.1, held_out_by="devices")
    manifest = make_manifest(digits, config, FIFTY, 0)
    check_manifest(manifest, digits, FIFTY_NAMES, "devices")
    with pytest.raises(InputError, match=r"partition\.held_out_by: cloud"):
        check_manifest(manifest, digits, FIFTY_NAMES)
    with pytest.raises(InputError, match=r"partition\.held_out_by: devices"):
        plain = make_manifest(digits, PartitionConfig(validation_fraction=0.1), FIFTY, 0)
        check_manifest(plain, digits, FIFTY_NAMES, "devices")
