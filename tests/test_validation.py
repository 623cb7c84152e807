"""The validator: accepts every manifest the project makes, names the rule that a bad one breaks."""

from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from kedro.io import DataCatalog
from kedro.validation import DataValidationError

from m2fdp.core.config import DatasetConfig, PartitionConfig
from m2fdp.core.data.manifest import make_manifest
from m2fdp.core.data.sources import load_dataset
from m2fdp.expectations.process import CHECKER
from m2fdp.validation import ManifestValidator


@pytest.fixture(scope="module")
def manifest():
    config = PartitionConfig(samples_per_device=20, validation_fraction=0.1)
    return make_manifest(load_dataset(DatasetConfig()), config, np.repeat(np.arange(10), 5), 0)


def change(manifest, split, column, value):
    """A copy with one value changed in the middle row of a split."""
    changed = manifest.copy()
    changed[column] = changed[column].astype(object)
    rows = np.flatnonzero(changed["split"] == split)
    changed.loc[rows[len(rows) // 2], column] = value
    return changed if value is None else changed.astype(manifest.dtypes)


def test_a_sound_manifest_passes_unchanged_and_is_documented(manifest, tmp_path):
    docs = tmp_path / "docs" / "manifest.html"
    before = manifest.copy()
    assert ManifestValidator(min_samples=20, filepath=str(docs)).validate(manifest) is manifest
    pd.testing.assert_frame_equal(manifest, before)
    page = docs.read_text()
    assert "compiled by Great Expectations" in page and "shard_size" in page


def test_the_same_manifest_makes_the_same_page(manifest, tmp_path):
    # A failing one: its page has the most parts with names of their own.
    doubled = pd.concat([manifest, manifest])
    pages = []
    for name in ("first.html", "second.html"):
        with pytest.raises(DataValidationError):
            ManifestValidator(filepath=str(tmp_path / name)).validate(doubled)
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]


@pytest.fixture
def checks(monkeypatch):
    """The manifests that Great Expectations has really checked, the latest last.

    As in a process for each validation, which remembers nothing.
    """
    checked = _recorded(monkeypatch)
    ask = CHECKER.ask

    def forgetful(digest, case):
        CHECKER._verdicts.clear()
        ask(digest, case)

    monkeypatch.setattr(CHECKER, "ask", forgetful)
    return checked


def _recorded(monkeypatch):
    checked = []
    send = CHECKER._send

    def record(digest, case):
        checked.append(case["table"])
        send(digest, case)

    monkeypatch.setattr(CHECKER, "_send", record)
    return checked


def test_a_process_checks_a_manifest_once_for_all_its_cells(manifest, tmp_path, monkeypatch):
    checked = _recorded(monkeypatch)
    # Values of its own, which no other test of this process has had checked.
    manifest = manifest.assign(sample=manifest["sample"] + 5_000)
    for cell in ("a", "b"):
        page = tmp_path / cell / "checks.html"
        ManifestValidator(filepath=str(page)).validate(manifest.copy())
        assert page.with_suffix(".passed").is_file()
    assert len(checked) == 1
    pages = [(tmp_path / cell / "checks.html").read_bytes() for cell in ("a", "b")]
    assert pages[0] == pages[1]
    broken = change(manifest, "test", "label", -1)
    for cell in ("a", "b"):
        with pytest.raises(DataValidationError, match="every label"):
            ManifestValidator(filepath=str(tmp_path / cell / "checks.html")).validate(broken)
        assert not (tmp_path / cell / "checks.passed").exists()
    ManifestValidator(min_samples=2).validate(manifest)
    assert len(checked) == 3


def test_a_manifest_that_has_passed_is_not_checked_again(manifest, tmp_path, checks):
    path = str(tmp_path / "checks.html")
    ManifestValidator(filepath=path).validate(manifest)
    page = (tmp_path / "checks.html").read_bytes()
    assert ManifestValidator(filepath=path).validate(manifest.copy()) is not manifest
    assert len(checks) == 1
    assert (tmp_path / "checks.html").read_bytes() == page


@pytest.mark.parametrize(
    ("split", "column", "value"),
    [("train", "device", 48), ("test", "label", 3), ("test", "sample", 0), ("test", "split", "")],
)
def test_any_other_value_is_checked_again(manifest, tmp_path, checks, split, column, value):
    validator = ManifestValidator(filepath=str(tmp_path / "checks.html"))
    validator.validate(manifest)
    changed = change(manifest, split, column, value)
    with suppress(DataValidationError):  # some of the changes break a rule, some do not
        validator.validate(changed)
    assert len(checks) == 2
    assert checks[-1].drop(columns="shard_size").equals(changed)


def test_other_rules_types_order_versions_and_code_are_checked_again(
    manifest, tmp_path, checks, monkeypatch
):
    path = str(tmp_path / "checks.html")
    ManifestValidator(filepath=path).validate(manifest)
    validator = ManifestValidator(min_samples=2, filepath=path)
    for other in (manifest, manifest.astype({"label": "int32"}), manifest[::-1], manifest):
        validator.validate(other)
    assert len(checks) == 5
    monkeypatch.setattr("m2fdp.validation.version", lambda library: "99.0")
    validator.validate(manifest)
    validator.validate(manifest)
    assert len(checks) == 6
    (tmp_path / "validation.py").write_text("# edited")
    monkeypatch.setattr("m2fdp.validation.__file__", str(tmp_path / "validation.py"))
    validator.validate(manifest)
    assert len(checks) == 7


def test_a_page_that_the_disk_refuses_leaves_the_former_one(manifest, tmp_path, small_files):
    page = tmp_path / "checks.html"
    page.write_text("the former")
    with small_files(), pytest.raises(OSError) as refused:
        ManifestValidator(filepath=str(page)).validate(manifest)
    assert refused.value.filename == str(page)
    assert page.read_text() == "the former"


def test_a_failure_never_counts_as_passed(manifest, tmp_path, checks):
    validator = ManifestValidator(filepath=str(tmp_path / "checks.html"))
    validator.validate(manifest)
    doubled = pd.concat([manifest, manifest])
    for _ in range(2):
        with pytest.raises(DataValidationError, match="no sample twice"):
            validator.validate(doubled)
    # Its page is the failed one now, so the sound manifest needs a page of its own again.
    validator.validate(manifest)
    assert len(checks) == 4


@pytest.mark.parametrize("file", ["checks.html", "checks.passed"])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("x")])
def test_a_lost_or_edited_page_or_record_is_made_again(manifest, tmp_path, checks, file, damage):
    validator = ManifestValidator(filepath=str(tmp_path / "checks.html"))
    validator.validate(manifest)
    before = (tmp_path / file).read_bytes()
    damage(tmp_path / file)
    validator.validate(manifest)
    assert len(checks) == 2
    assert (tmp_path / file).read_bytes() == before


@pytest.mark.parametrize(
    ("split", "column", "value", "rule"),
    [
        ("test", "sample", 3, "no sample twice"),
        ("test", "split", "holdout", "every split is one of train, validation, test"),
        ("train", "label", 10, "every label is one of 0 to 9"),
        ("test", "label", -1, "every label is one of 0 to 9"),
        ("train", "device", -1, "training records are held by devices 0 to n-1"),
        ("train", "device", 51, "training records are held by devices 0 to n-1"),
        ("train", "device", 10**12, "training records are held by devices 0 to n-1"),
        ("test", "device", 3, "stay with the cloud"),
        ("validation", "device", 3, "stay with the cloud"),
        ("train", "dataset", "mnist", "one data set"),
        ("train", "dataset", None, "no dataset is null"),
        ("train", "sample", None, "no sample is null"),
        ("train", "split", None, "no split is null"),
        ("train", "label", None, "no label is null"),
        ("train", "device", None, "no device is null"),
    ],
)
def test_each_rule_is_enforced(split, column, value, rule, manifest):
    with pytest.raises(DataValidationError) as caught:
        ManifestValidator().validate(change(manifest, split, column, value))
    assert rule in caught.value.message
    assert "\n" not in caught.value.message
    assert "not checkable" not in caught.value.message


def test_a_sample_in_training_and_test_is_found_whatever_its_device(manifest):
    leaked = manifest[manifest["split"] == "train"].iloc[[7]].assign(split="test", device=-1)
    with pytest.raises(DataValidationError, match="no sample twice"):
        ManifestValidator().validate(pd.concat([manifest, leaked], ignore_index=True))


def test_a_device_without_records_is_named(manifest):
    with pytest.raises(DataValidationError, match=r"all of them \(absent: 7, 30\)"):
        ManifestValidator().validate(manifest[~manifest["device"].isin([7, 30])])


def test_small_shards_are_found(manifest):
    short = manifest.drop(index=manifest.index[manifest["device"] == 4][0])
    ManifestValidator(min_samples=19).validate(short)
    with pytest.raises(DataValidationError, match=r"at least 20 training records \(found 19"):
        ManifestValidator(min_samples=20).validate(short)


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_missing_split_is_found(split, manifest):
    with pytest.raises(DataValidationError, match=rf"records exist \(absent: {split}\)"):
        ManifestValidator().validate(manifest[manifest["split"] != split])


def test_an_empty_or_foreign_table_is_refused(manifest):
    with pytest.raises(DataValidationError, match="absent: test, train"):
        ManifestValidator().validate(manifest[:0])
    with pytest.raises(DataValidationError, match="has the columns"):
        ManifestValidator().validate(manifest.drop(columns="label"))


def test_own_arrays_may_have_any_number_of_classes(manifest):
    own = manifest.assign(dataset="npz", label=manifest["label"] * 7)
    ManifestValidator().validate(own)
    with pytest.raises(DataValidationError, match="every label is at least 0"):
        ManifestValidator().validate(own.assign(label=own["label"] - 1))


def test_the_catalog_stops_a_bad_manifest_before_it_is_saved(manifest, tmp_path):
    path, docs = tmp_path / "manifest.csv", tmp_path / "docs.html"
    catalog = DataCatalog.from_config(
        {
            "manifest": {
                "type": "pandas.CSVDataset",
                "filepath": str(path),
                "save_args": {"index": False},
                "validator": {
                    "class": "m2fdp.validation.ManifestValidator",
                    "options": {"min_samples": 2, "filepath": str(docs)},
                },
            }
        }
    )
    with pytest.raises(DataValidationError, match="no sample twice"):
        catalog.save("manifest", change(manifest, "test", "sample", 3))
    assert docs.exists() and not path.exists()
    catalog.save("manifest", manifest)
    pd.testing.assert_frame_equal(catalog.load("manifest"), manifest)


def test_records_that_devices_hold_out_are_held_by_devices(tmp_path):
    config = PartitionConfig(validation_fraction=0.1, held_out_by="devices")
    table = make_manifest(load_dataset(DatasetConfig()), config, np.repeat(np.arange(10), 5), 0)
    validator = ManifestValidator(filepath=str(tmp_path / "checks.html"))
    validator.validate(table)
    for stranger in (50, 77):
        with pytest.raises(DataValidationError, match="validation records are held by devices"):
            validator.validate(change(table, "validation", "device", stranger))
