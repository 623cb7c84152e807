"""Where rows come from beside files: entries of Kedro's catalog, data sets of Hugging Face's."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from kedro.io import DataCatalog, MemoryDataset
from tests.tables.test_table import CONTENT, rows_of

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.core.own_code import GIVEN
from m2fdp.pipelines.datasets import rows_of as rows_of_entry
from m2fdp.tables import frames
from m2fdp.tables.describe import describe
from m2fdp.tables.frames import files_of, read_parts


@pytest.fixture
def catalog(monkeypatch):
    entries = {"patients": rows_of(), "number": 3}
    catalog = DataCatalog({name: MemoryDataset(value) for name, value in entries.items()})
    catalog["gone"] = MemoryDataset()
    monkeypatch.setitem(GIVEN, "catalog", lambda name: rows_of_entry(catalog, name))
    return catalog


def test_an_entry_of_the_catalog_is_a_table(catalog):
    (part,) = read_parts("dataset.root", "catalog:patients")
    assert part.equals(rows_of())
    assert describe("catalog:patients", "ill", "hospital").edges == (
        ("cloud", "Basel"),
        ("cloud", "Bern"),
    )


def test_nothing_is_verified_on_the_word_of_an_entry(catalog, tmp_path):
    """A query, or a class of the user's own, may scale every row by all."""
    (tmp_path / "schema.yml").write_text(yaml.safe_dump(CONTENT), encoding="utf-8")
    names = {"name": "table", "schema": str(tmp_path / "schema.yml")}
    told = load_dataset(DatasetConfig(root="catalog:patients", **names), tmp_path).doubt
    assert told == "catalog:patients makes of each row what it says, and nothing of it of another's"


BAD_ENTRIES = {
    "patient": "is no entry of the catalog",
    "number": "is a int; valid: an entry that loads rows",
    "gone": "can't be loaded",
}


@pytest.mark.parametrize(("name", "line"), BAD_ENTRIES.items(), ids=BAD_ENTRIES)
def test_bad_entries_are_refused_in_one_line(catalog, name, line):
    with pytest.raises(InputError, match=line) as refused:
        list(read_parts("dataset.root", f"catalog:{name}"))
    assert "\n" not in str(refused.value)


def test_without_a_catalog_nobody_looks_for_an_entry(monkeypatch):
    monkeypatch.delitem(GIVEN, "catalog", raising=False)
    with pytest.raises(InputError, match="there is no catalog here"):
        list(read_parts("dataset.root", "catalog:patients"))


class Split:
    """What is used of a `datasets.Dataset`: its classes have numbers."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.features = {
            name: SimpleNamespace(names=["healthy", "ill"]) if name == "ill" else SimpleNamespace()
            for name in frame
        }

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def iter(self, batch_size):
        middle = len(self.frame) // 2
        for part in (self.frame.iloc[:middle], self.frame.iloc[middle:]):
            yield SimpleNamespace(to_pandas=part.reset_index(drop=True).copy)


@pytest.fixture
def hub(monkeypatch):
    """Hugging Face's library with two data sets."""
    frame = rows_of(ill=np.resize([0, 1], 40))
    known = {
        "ours/split": {"train": Split(frame), "validation": Split(frame), "test": Split(frame)},
        "ours/whole": {"everything": Split(frame)},
    }
    library = ModuleType("datasets")
    library.load_dataset = known.__getitem__
    monkeypatch.setitem(sys.modules, "datasets", library)
    frames._hub.cache_clear()
    yield frame
    frames._hub.cache_clear()


def test_a_data_set_of_the_hub_is_a_table(hub):
    assert files_of("hf:ours/split") == {
        "train": "hf:ours/split#train",
        "test": "hf:ours/split#test",
    }
    parts = list(read_parts("dataset.root", "hf:ours/split#test"))
    told = pd.concat(parts)
    assert told.index.tolist() == list(range(40))
    assert told["ill"].tolist() == ["healthy", "ill"] * 20
    schema = describe("hf:ours/whole", "ill").schema
    assert "classes: [healthy, ill]" in schema


def test_one_that_the_hub_lacks_is_refused_in_one_line(hub):
    with pytest.raises(InputError, match="can't be loaded by Hugging Face's datasets") as refused:
        files_of("hf:ours/none")
    assert "\n" not in str(refused.value)


def test_without_the_extra_the_way_to_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    frames._hub.cache_clear()
    with pytest.raises(InputError, match="pip install -r requirements-hf.lock"):
        files_of("hf:ours/none")


def test_the_library_itself_reads_a_file(tmp_path):
    pytest.importorskip("datasets", reason="an extra: requirements-hf.lock")
    rows_of().to_csv(tmp_path / "train.csv", index=False)
    frames._hub.cache_clear()
    assert describe(f"hf:{tmp_path}", "ill", "hospital").n_rows == 40
