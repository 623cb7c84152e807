"""Tables of a user's own: what a schema makes of rows, and what bad rows get."""

import numpy as np
import pandas as pd
import pytest

from m2fdp import Experiment
from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.given.loading import parse_block
from m2fdp.tables.encoding import encode
from m2fdp.tables.schema import Schema
from m2fdp.tables.table import table_of

CONTENT = {
    "label": {"column": "ill", "classes": {"healthy": [0], "ill": [1, 2]}},
    "client": "hospital",
    "columns": {
        "age": {"range": [20, 100]},
        "chol": {"range": [100, 600], "missing": [0]},
        "sex": {"categories": ["Male", "Female"]},
    },
}


def schema_of(**changes) -> Schema:
    return parse_block(Schema, CONTENT | changes, "schema")


def rows_of(n: int = 40, **columns) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    table = {
        "age": rng.integers(20, 100, n),
        "chol": rng.integers(100, 600, n),
        "sex": rng.choice(["Male", "Female"], n),
        "hospital": np.resize(["Basel", "Bern"], n),
        "ill": np.resize([0, 0, 1, 2], n),
    }
    return pd.DataFrame(table | columns)


def test_rows_become_inputs_by_the_schema_alone():
    frame = pd.DataFrame(
        {
            "age": [20, 60, 100, 130],
            "chol": [0, 350, None, 600],
            "sex": ["Female", "Male", "other", "Male"],
            "hospital": ["Bern", "Basel", "Bern", "Basel"],
            "ill": [0, 1, 2, 0],
        }
    )
    encoded = encode(frame, schema_of())
    assert encoded.inputs[:, 0, :, 0].tolist() == [
        # age, chol, chol is unknown, Male, Female, other, one
        [-1, 0, 1, 0, 1, 0, 1],
        [0, 0, 0, 1, 0, 0, 1],
        [1, 0, 1, 0, 0, 1, 1],
        [1, 1, 0, 1, 0, 0, 1],
    ]
    assert encoded.labels.tolist() == [0, 1, 1, 0]
    told = {(fault.column, fault.kind, fault.rows, fault.first) for fault in encoded.faults}
    assert told == {("age", "is outside the range", 1, 3), ("sex", "is in no category", 1, 2)}


@pytest.mark.parametrize("seed", range(5))
def test_no_row_shapes_what_another_becomes(seed):
    """Neighbouring tables stay neighbours, whatever the row that one of them has beyond."""
    rng = np.random.default_rng(seed)
    frame, added = rows_of(), rows_of(1, age=[rng.normal() * 1e6], chol=[1e9], sex=["?"])
    both = encode(pd.concat([frame, added], ignore_index=True), schema_of())
    assert np.array_equal(both.inputs[:-1], encode(frame, schema_of()).inputs)
    assert np.abs(both.inputs).max() <= 1


def test_a_share_of_each_client_and_class_is_tested_on():
    table = table_of(rows_of(200), schema_of(), seed=0)
    other = table_of(rows_of(200), schema_of(), seed=1)
    assert table.n_train == 160
    tested = pd.crosstab(table.clients[160:], table.labels[160:])
    assert tested.to_numpy().tolist() == [[10, 10], [10, 10]]
    assert not np.array_equal(table.images[:160], other.images[:160])


def test_a_column_says_who_is_tested_on():
    split = np.resize(["train", "train", "test", "train"], 40)
    table = table_of(rows_of(split=split), schema_of(split="split"), seed=0)
    assert table.n_train == 30


def test_small_clients_are_left_out_and_named():
    frame = rows_of(hospital=["Chur", *np.resize(["Basel", "Bern"], 39)])
    table = table_of(frame, schema_of(), seed=0)
    assert set(table.clients) == {"Basel", "Bern"}
    assert table.notes == ("1 client with fewer than 2 rows left out: Chur",)


def test_the_largest_clients_are_kept():
    frame = rows_of(hospital=np.repeat(["Chur", "Bern", "Basel"], [20, 10, 10]))
    table = table_of(frame, schema_of(max_clients=2), seed=0)
    assert set(table.clients) == {"Chur", "Basel"}
    assert table.notes == ("1 client with fewer than 2 rows, or beyond 2 left out: Bern",)


def test_columns_make_the_tree():
    frame = rows_of(canton=np.resize(["BS", "BE"], 40))
    experiment = Experiment.from_frame(
        frame, CONTENT | {"groups": [{"column": "canton"}]}, {"topology.trust.untrusted": ["BE"]}
    )
    tree = experiment.plan.network.tree
    assert tree.names == (("cloud",), ("BE", "BS"), ("Bern", "Basel"))
    held = experiment.manifest.query("split == 'train'")
    assert held.groupby("device")["sample"].count().to_dict() == {"Basel": 16, "Bern": 16}


def test_a_client_below_two_servers_is_refused():
    frame = rows_of(canton=np.resize(["BS", "BE", "ZH"], 40))
    with pytest.raises(InputError, match="Basel.*is below both BE and BS"):
        Experiment.from_frame(frame, CONTENT | {"groups": [{"column": "canton"}]})


OPEN = {"confirmed": False}
DOUBTS = {
    "none": ({}, ""),
    "a range": ({"columns": CONTENT["columns"] | {"age": {"range": [20, 100]} | OPEN}}, "age"),
    "the classes": ({"label": CONTENT["label"] | OPEN}, "label"),
    "who the clients are": ({"client": {"column": "hospital"} | OPEN}, "client"),
    "who is above them": ({"groups": [{"column": "canton"} | OPEN]}, "groups.0"),
}


@pytest.mark.parametrize("confirmed", [False, True])
@pytest.mark.parametrize(("change", "named"), DOUBTS.values(), ids=DOUBTS)
def test_a_run_is_conditional_until_all_is_confirmed_in_the_schema(change, named, confirmed):
    """`dataset.confirmed` is for floats whose scale nobody else states: it opens no schema."""
    keys = {"training.rounds": 2, "dataset.confirmed": confirmed}
    frame = rows_of(canton=np.resize(["BS", "BE"], 40))
    content = CONTENT | ({} if "groups" in change else {"ignore": ["canton"]}) | change
    experiment = Experiment.from_frame(frame, content, keys)
    assert experiment.summary()["guarantee"] == ("conditional" if named else "verified")
    told = [line for line in experiment.warnings() if "dataset.schema says of" in line]
    assert [line.split("says of ")[1].split(" (")[0] for line in told] == [named] * bool(named)


BAD_ROWS = {
    "a missing column": (lambda f: f.drop(columns="age"), "lacks the column age"),
    "a column beyond the schema": (lambda f: f.assign(x=1), "has the column x, which the schema"),
    "a label in no class": (lambda f: f.assign(ill=7), "ill: '7' is in no class, row 0, in all 40"),
    "an empty cell": (lambda f: f.assign(age=np.nan), "age: is empty, row 0, in all 40 rows"),
    "an infinite number": (lambda f: f.assign(age=np.inf), "age: 'inf' is not finite"),
    "a text for a number": (lambda f: f.assign(age="old"), "age: 'old' is no number"),
    "a class without a record": (lambda f: f.assign(ill=0), "no training record of the class ill"),
    "no client": (lambda f: f.assign(hospital=None), "hospital: 'None' names nobody"),
    "no row": (lambda f: f.iloc[:0], "has no row"),
}


@pytest.mark.parametrize(("change", "line"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_are_refused_in_one_line(change, line):
    with pytest.raises(InputError) as refused:
        table_of(change(rows_of()), schema_of(), seed=0)
    assert line in str(refused.value) and "\n" not in str(refused.value)


def test_numbers_outside_their_range_are_refused_where_the_schema_says_so():
    frame, schema = rows_of(age=150), schema_of(on_violation="error")
    with pytest.raises(InputError, match=r"age: '150' is outside the range, row 0, in all 40 rows"):
        table_of(frame, schema, seed=0)


BAD_SCHEMAS = {
    "one class": ({"label": {"column": "ill", "classes": [1]}}, "schema.label", "two classes"),
    "a value in two classes": (
        {"label": {"column": "ill", "classes": {"a": [1], "b": [1]}}},
        "schema.label",
        "1 stands there twice",
    ),
    "a key that is meant for a missing one": (
        {"colums": {}, "columns": ...},
        "schema.colums",
        "columns?",
    ),
    "two kinds": (
        {"columns": {"age": {"range": [0, 1], "text": 64}}},
        "schema.columns.age",
        "one of range, categories, text and image",
    ),
    "an empty range": (
        {"columns": {"age": {"range": [1, 1]}}},
        "schema.columns.age.range",
        "low < high",
    ),
    "NaN for a bound": (
        {"columns": {"age": {"range": [float("nan"), 1]}}},
        "schema.columns.age.range.0",
        "finite number",
    ),
    "a bound beyond float32": (
        {"columns": {"age": {"range": [-1e308, 1e308]}}},
        "schema.columns.age.range.0",
        "greater than or equal to -1",
    ),
    "no column": ({"columns": {}}, "schema", "at least one column"),
    "a label that is an input": (
        {"columns": {"ill": {"range": [0, 1]}}},
        "schema",
        "ill has another part",
    ),
    "an unknown key": ({"colour": 1}, "schema.colour", "unknown key"),
    "10,000 categories": (
        {"columns": {"age": {"categories": list(range(10_000))}}},
        "schema.columns.age.categories",
        "at most 1000 items",
    ),
}


@pytest.mark.parametrize(("change", "key", "line"), BAD_SCHEMAS.values(), ids=BAD_SCHEMAS)
def test_bad_schemas_are_refused_in_one_line(change, key, line):
    with pytest.raises(InputError) as refused:
        parse_block(Schema, {k: v for k, v in (CONTENT | change).items() if v is not ...}, "schema")
    assert refused.value.key == key and line in str(refused.value)


@pytest.fixture
def on_disk(tmp_path, monkeypatch):
    """A function that writes a schema and a table, and reads them as a data set."""
    import yaml

    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.yml").write_text(yaml.safe_dump(CONTENT))

    def read(content: str | bytes, name: str = "rows.csv"):
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
        return load_dataset(DatasetConfig(name="table", root=name, schema="schema.yml"))

    return read


CSV = rows_of().to_csv(index=False)
WRITTEN = {
    "as pandas writes it": CSV,
    "with a BOM": b"\xef\xbb\xbf" + CSV.encode(),
    "with semicolons and decimal commas": CSV.replace(",", ";").replace("50;", "50,0;"),
    "with tabs": CSV.replace(",", "\t"),
    "with Windows' line ends": CSV.replace("\n", "\r\n"),
    "in UTF-16": CSV.encode("utf-16"),
    "with quotes": CSV.replace("Bern", '"Bern"'),
    "with spaces": CSV.replace(",", ", "),
}


@pytest.mark.parametrize("content", WRITTEN.values(), ids=WRITTEN)
def test_a_table_reads_the_same_however_it_is_written(on_disk, content):
    table, plain = on_disk(content), table_of(rows_of(), schema_of(), seed=0)
    assert np.array_equal(table.images, plain.images)
    assert np.array_equal(table.labels, plain.labels)


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_tables_of_databases(on_disk, tmp_path, suffix):
    path = tmp_path / f"rows.{suffix}"
    getattr(rows_of(), f"to_{suffix}")(path)
    table, plain = on_disk(path.read_bytes(), path.name), table_of(rows_of(), schema_of(), seed=0)
    assert np.array_equal(table.images, plain.images)


def test_a_folder_with_train_and_test(on_disk, tmp_path):
    (tmp_path / "rows").mkdir()
    for name, n in (("train", 40), ("test", 12)):
        rows_of(n).to_csv(tmp_path / "rows" / f"{name}.csv", index=False)
    config = DatasetConfig(name="table", root="rows", schema="schema.yml")
    on_disk(CSV)
    table = load_dataset(config)
    assert (len(table.labels), table.n_train) == (52, 40)


BAD_FILES = {
    "no file": (None, "absent.csv", "no such file"),
    "a file that DVC keeps": (None, "kept.csv", "`dvc pull` fetches it"),
    "a workbook": ("x", "rows.xlsx", "save its sheet as CSV"),
    "another kind": ("x", "rows.txt", "is of another kind"),
    "nothing": ("", "rows.csv", "can't be read as a table"),
    "a header only": ("age,chol,sex,hospital,ill\n", "rows.csv", "has no row"),
    "a name twice": ("age, age\n1,2\n", "rows.csv", "two columns age"),
    "no parquet": ("x", "rows.parquet", "can't be read as a table"),
    "a row too long": (CSV + "1,2,Male,Bern,0,9,9\n", "rows.csv", "line 42"),
    "a bad cell": (
        CSV.replace("\n", "\n\n", 1) + "x,200,Male,Bern,0\n",
        "rows.csv",
        "age: 'x' is no number, line 43, in all 1 row",
    ),
    "an empty folder": (None, "schema.d", "no table and no picture"),
}


@pytest.mark.parametrize(("content", "name", "line"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files_are_refused_in_one_line(on_disk, tmp_path, content, name, line):
    (tmp_path / "schema.d").mkdir()
    (tmp_path / "kept.csv.dvc").touch()
    with pytest.raises(InputError) as refused:
        if content is None:
            load_dataset(DatasetConfig(name="table", root=name, schema="schema.yml"))
        on_disk(content, name)
    assert refused.value.key == "dataset.root"
    assert line in str(refused.value) and "\n" not in str(refused.value)
