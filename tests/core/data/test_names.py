"""Who gets which record follows from names: never from the order of rows, nor from how a table is
typed. What is no such table or tree ends in one line."""

import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from m2fdp import Experiment, load_config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.manifest import by_name, make_manifest
from m2fdp.core.data.partitioners import CLOUD, Names
from m2fdp.core.errors import InputError
from m2fdp.given.edges import read_edges, tree_from_edges
from m2fdp.given.splits import check_manifest
from m2fdp.pipelines.data import label_counts
from m2fdp.pipelines.datasets import ManifestDataset
from m2fdp.validation import ManifestValidator

REGIONS = {"north": ["n10", "n9"], "south": ["s1", "s2"], "east": ["e1"], "west": ["w1", "w2"]}
ROWS = [
    *(("cloud", region) for region in REGIONS),
    *((region, device) for region, devices in REGIONS.items() for device in devices),
]
# Label k belongs to the k-th region by its name: who deals by numbers must be told whose they are.
SCHEMES = """
import numpy as np

HOMES = ["east", "north", "south", "west"]

def by_name(labels, n_classes, edge_of_device, rng, *, devices, servers):
    held = {home: [d for d, s in zip(devices, servers) if s == home] for home in HOMES}
    return [held[HOMES[label]][i // 4 % len(held[HOMES[label]])] for i, label in enumerate(labels)]

def told(labels, n_classes, edge_of_device, rng, *, servers):
    held = {home: [j for j, s in enumerate(servers) if s == home] for home in HOMES}
    return [held[HOMES[label]][i // 4 % len(held[HOMES[label]])] for i, label in enumerate(labels)]

def by_number(labels, n_classes, edge_of_device, rng):
    return np.arange(len(labels)) % len(edge_of_device)

def numbers_as_texts(labels, n_classes, edge_of_device, rng):
    return by_number(labels, n_classes, edge_of_device, rng).astype(str)

def numbers_as_objects(labels, n_classes, edge_of_device, rng):
    return by_number(labels, n_classes, edge_of_device, rng).astype(object)

def unknown(labels, n_classes, edge_of_device, rng):
    return np.where(labels == 0, "e1", "e2")

def nameless(labels, n_classes, edge_of_device, rng):
    return ["s1", "w1"] * (len(labels) // 2)
"""
DATA = Dataset(
    "npz",
    np.random.default_rng(0).random((48, 4, 4, 1), dtype=np.float32),
    np.arange(48) % 4,
    n_train=40,
    n_classes=4,
)
# Runs of a property: in every suite, and where all is tried.
TRIED = [200, pytest.param(10_000, marks=pytest.mark.full)]


@pytest.fixture(autouse=True)
def own_schemes(tmp_path, monkeypatch):
    (tmp_path / "own_schemes.py").write_text(SCHEMES)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("own_schemes", None)


def experiment_of(rows, manifest=None, **keys):
    lines = "".join(f"{parent},{child}\n" for parent, child in rows)
    with open("edges.csv", "w", encoding="utf-8") as file:
        file.write(f"parent,child\n{lines}")
    keys = {"partition.scheme": "iid", **keys}
    config = load_config(
        {"topology.edges": "edges.csv"}, {k.replace("__", "."): v for k, v in keys.items()}
    )
    return Experiment.from_config(config, DATA, manifest)


def held_by(experiment):
    """What each device is said to hold, and what its region is said to be."""
    table, tree = experiment.manifest, experiment.network.tree
    train = table[table["split"] == "train"]
    return {name: sorted(rows["sample"]) for name, rows in train.groupby("device")}, {
        device: tree.names[1][parent]
        for device, parent in zip(tree.names[2], tree.parents[1], strict=True)
    }


@pytest.mark.parametrize(
    "scheme", ["iid", "labels_per_device", "own_schemes:by_name", "own_schemes:told"]
)
def test_the_order_of_the_edges_moves_no_record_and_no_noise(scheme):
    """Of 40 records here, 30 were in another region than their own, and 20 had another noise."""
    keys = {"topology__trust__untrusted": ["south", "west"], "partition__scheme": scheme}
    first, regions = held_by(written := experiment_of(ROWS, **keys))
    for seed in range(4):
        rows = [ROWS[i] for i in np.random.default_rng(seed).permutation(len(ROWS))]
        other = experiment_of(rows, **keys)
        assert held_by(other) == (first, regions)
        noise = [
            dict(zip(e.network.tree.names[2], e.network.noise[2], strict=True))
            for e in (written, other)
        ]
        assert noise[0] == noise[1] and noise[0]["s1"] > 0 == noise[0]["e1"]
    if "own" in scheme:
        of_label = {label: home for label, home in enumerate(sorted(REGIONS))}
        for device, samples in first.items():
            assert {of_label[DATA.labels[i]] for i in samples} == {regions[device]}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"partition__scheme": "own_schemes:by_number"}, "deals by numbers, and topology.edges"),
        ({"partition__scheme": "own_schemes:numbers_as_texts"}, "to device 0; valid: -1 = left"),
        ({"partition__scheme": "own_schemes:numbers_as_objects"}, "to device 0; valid: -1 = left"),
        ({"partition__scheme": "own_schemes:unknown"}, "to device e2; valid: -1 = left out, e1"),
        ({"partition__scheme": "own_schemes:nameless"}, "own_schemes:nameless': e1 would hold no"),
        ({"partition__scheme": "table", "partition__table": [[1] * 4] * 7}, "'rows without names'"),
        ({"partition__scheme": "table", "partition__table.n9": [1] * 4}, "lacks a row for e1"),
        (
            {"partition__scheme": "table", "partition__table": dict.fromkeys([*"abc"], [1] * 4)},
            "partition.table.a = .*: is none of e1, n9, n10",
        ),
    ],
)
def test_numbers_say_nothing_of_devices_that_have_names(keys, words):
    with pytest.raises(InputError, match=words) as caught:
        experiment_of(ROWS, **keys).check()
    assert "\n" not in str(caught.value)


def test_rows_of_a_table_are_found_by_name():
    _, homes = held_by(experiment_of(ROWS))
    table = {name: [int(home == each) for each in sorted(REGIONS)] for name, home in homes.items()}
    keys = {"partition__scheme": "table", "partition__table": table}
    held, regions = held_by(experiment_of(ROWS, **keys))
    for device, samples in held.items():
        assert {sorted(REGIONS)[DATA.labels[i]] for i in samples} == {regions[device]}


NAMES = ["007", "7", "None", "null", "nan", "-", "1.0", "TRUE", "a$b", "ä,ö"]


def test_a_manifest_with_names_comes_back_from_its_file(tmp_path):
    experiment = experiment_of(
        [*(("cloud", f'"{name}"') for name in NAMES)],
        topology__trust__ratios=None,
        training__local_aggregation=None,
    )
    table = experiment.manifest
    assert set(table["device"]) == {*NAMES, "-1"}
    file = ManifestDataset(filepath=str(tmp_path / "manifest.csv"), save_args={"index": False})
    file.save(table)
    again = file.load()
    ManifestValidator().validate(again)
    pd.testing.assert_frame_equal(table, again, check_index_type=False)
    other = Experiment.from_config(experiment.config, DATA, again)
    assert other.manifest.attrs.keys() == {"file", "sha256"}
    pd.testing.assert_frame_equal(other.dealt, experiment.dealt)
    assert list(label_counts(again).index) == list(experiment.network.tree.names[1])


def test_rules_of_the_page_hold_for_names_too():
    table = experiment_of(
        ROWS, partition__validation_fraction=0.2, partition__held_out_by="devices"
    ).manifest
    ManifestValidator().validate(table)
    train = table["split"] == "train"
    at_cloud = table.assign(device=table["device"].where(~train | (table["sample"] % 9 > 0), "-1"))
    for broken, rule in (
        (at_cloud, "training records are held by devices"),
        (
            table.assign(device=table["device"].replace("-1", "n9")),
            "test records stay with the cloud",
        ),
        (table.drop(index=table.index[table["device"] == "e1"][1:]), "at least 3 training records"),
    ):
        with pytest.raises(Exception, match=rule):
            ManifestValidator(min_samples=3).validate(broken)


def change(column, value, row=0):
    return lambda table: _set(table, column, row, value)


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda t: t.to_dict(), "manifest = 'dict': is no DataFrame of pandas"),
        (lambda t: t.drop(columns="split"), "'the columns dataset, sample, label, device': "),
        (lambda t: t.assign(region=1), "sample, split, label, device, region': valid: ["),
        (lambda t: t[:0], "the manifest = 'no row': valid: one row a record"),
        (lambda t: t[t["device"] != "s1"], "has 7; both must have as many, and s1"),
        (change("sample", np.nan), "'sample nan': valid: whole numbers"),
        (change("sample", 0.5), "'sample 0.5': valid: whole numbers"),
        (change("label", True), "'label True': valid: whole numbers"),
        (change("label", 9), "'label 9 of sample"),
        (change("sample", 48), "the manifest = 48: is no sample; npz has 0 to 47"),
        (change("split", "Train"), "valid: train, validation, test; did you mean train?"),
        (change("device", -5), "'device -5': is none of topology's 7; valid: -1 for the cloud, e1"),
        (change("device", None), "'device None': is none of"),
        (change("device", "N9"), "is none of topology's 7; valid: -1 for the cloud, e1, n9, n10"),
        (change("device", "-1"), "'the cloud (device -1)': holds training records"),
        (change("device", "s1", row=-1), "'test records': are held by devices"),
        (change("dataset", "digits"), "is not the data set of this run; dataset.name: digits"),
        (lambda t: pd.concat([t, t[:1]]), "is dealt to e1, e1: whoever's it is"),
    ],
)
def test_what_a_notebook_hands_over_is_refused_in_one_line(damage, line):
    """Nine of these were tracebacks, and some trained: "verified", of devices without records."""
    table = experiment_of(ROWS).manifest
    with pytest.raises(InputError) as refused:
        experiment_of(ROWS, damage(table), algorithm="hfl").train()
    assert line in str(refused.value) and str(refused.value).isprintable()


@pytest.mark.parametrize(
    "same",
    [
        lambda t: t[::-1].set_axis(range(7, 7 + len(t))),
        lambda t: t[t.columns[::-1]],
        lambda t: t.astype({"sample": "float64", "label": "Int64", "device": "category"}),
        lambda t: t.convert_dtypes(dtype_backend="pyarrow"),
        lambda t: (
            t.assign(
                device=t["device"].map(["e1", "n9", "n10", "s1", "s2", "w1", "w2", "-1"].index)
            )
            .replace({"device": {7: -1}})
            .astype({"device": "float64"})
        ),
    ],
    ids=["rows and index", "columns", "dtypes", "Arrow", "numbers that pandas made floats"],
)
def test_what_a_notebook_does_to_a_table_changes_nothing(same):
    table = experiment_of(ROWS).manifest
    pd.testing.assert_frame_equal(experiment_of(ROWS, same(table)).manifest, table)


CELLS = st.sampled_from(["c", "A", "B", "1", "2", "01", "10", "-1", "", " ", "x y", '"', "ß", "\0"])
PAIRS = st.lists(st.tuples(CELLS, CELLS), max_size=9)


@pytest.mark.parametrize("examples", TRIED)
def test_drawn_edges_are_the_tree_that_they_say_or_one_line(examples, tmp_path):
    path = tmp_path / "drawn.csv"

    @settings(max_examples=examples)
    @given(PAIRS, st.randoms(use_true_random=False))
    def check(pairs, random):
        lines = "".join(f"{parent},{child}\n" for parent, child in pairs)
        path.write_text(f"parent,child\n{lines}", encoding="utf-8")
        try:
            edges = read_edges(path)
            tree = tree_from_edges(edges)
        except InputError as error:
            assert error.key == "topology.edges" and str(error).isprintable()
            return
        found = {
            (tree.names[layer][parent], tree.names[layer + 1][child])
            for layer, parents in enumerate(tree.parents)
            for child, parent in enumerate(parents)
        }
        assert found == set(edges) and len(found) == len(edges)
        assert not {parent for parent, _ in edges} & set(tree.names[-1])
        random.shuffle(edges)
        assert tree_from_edges(edges).names == tree.names

    check()


EDGE_OF_DEVICE = np.array([0, 0, 1])
TREES = {
    "numbers": None,
    "names": Names(("a", "b", "c"), ("A", "A", "B")),
    "names that are numbers": Names(("2", "0", "1"), ("A", "A", "B")),
    "names that pandas reads as numbers": Names(("002", "000", "001"), ("A", "A", "B")),
}
VALUES = st.sampled_from(
    [0, 1, 2, 3, -1, -5, 0.0, 1.5, np.nan, None, pd.NA, True, "a", "b", "0", "1.0", "-1", "Train"]
    + ["train", "test", "validation", "", 10**30, np.inf, (1, 2), pd.Timestamp(0), "npz", b"a"]
)
COLUMNS = st.sampled_from(["dataset", "sample", "split", "label", "device"])
TYPES = [
    "category",
    "Int64",
    "float64",
    "int8",
    "string",
    "object",
    "int64[pyarrow]",
    "uint64",
    "O",
]


def _set(table, column, row, value):
    values = table[column].astype(object).tolist() if column in table else []
    if not values:
        return table
    values[row % len(values)] = value
    return table.assign(**{column: pd.Series(values, index=table.index, dtype=object)})


def _typed(table, column, kind):
    try:
        return table.astype({column: kind})
    except Exception:
        return table


CHANGES = st.one_of(
    st.builds(lambda c, r, v: lambda t: _set(t, c, r, v), COLUMNS, st.integers(0, 47), VALUES),
    st.builds(lambda c, k: lambda t: _typed(t, c, k), COLUMNS, st.sampled_from(TYPES)),
    st.builds(lambda seed: lambda t: t.sample(frac=1, random_state=seed), st.integers(0, 9)),
    st.builds(
        lambda d: lambda t: t[t["device"].astype(str) != d], st.sampled_from(["0", "a", "-1"])
    ),
    st.builds(lambda r: lambda t: pd.concat([t, t.iloc[r : r + 1]]), st.integers(0, 47)),
    st.builds(lambda c: lambda t: t.drop(columns=c, errors="ignore"), COLUMNS),
    st.builds(lambda c: lambda t: t.rename(columns={c: "other"}), COLUMNS),
    st.builds(lambda c: lambda t: t.set_index(c) if c in t else t, COLUMNS),
    st.sampled_from(
        [
            lambda t: t.iloc[:0],
            lambda t: t[t.columns[::-1]],
            lambda t: t.reset_index(),
            lambda t: t.T,
            lambda t: pd.concat([t, t], axis=1),
            lambda t: t.assign(region="x"),
            lambda t: t.set_axis(pd.MultiIndex.from_product([["x"], t.columns]), axis=1),
            lambda t: t.assign(device=t["device"].astype(str)),
            lambda t: t.assign(device=t["device"].where(t["device"].astype(str) != "-1", -1)),
        ]
    ),
)
SOUND = {
    kind: by_name(
        make_manifest(
            DATA, load_config({"partition.scheme": "iid"}).partition, EDGE_OF_DEVICE, 0, names
        ),
        names or Names.numbered(EDGE_OF_DEVICE.tolist()),
    )
    for kind, names in TREES.items()
}


def _said(value, names):
    """The device that a value names, read by hand."""
    text = str(int(value)) if isinstance(value, float) and value == int(value) else str(value)
    text = text.removesuffix(".0")
    if text == "-1":
        return CLOUD
    numbered = names is None or (names.devices == ("a", "b", "c") and text in "012")
    return (["0", "1", "2"] if numbered else list(names.devices)).index(text)


@pytest.mark.parametrize("examples", TRIED)
@pytest.mark.parametrize("kind", TREES)
def test_drawn_manifests_mean_what_they_say_or_end_in_one_line(kind, examples):
    names = TREES[kind]

    @settings(max_examples=examples)
    @given(st.lists(CHANGES, max_size=3))
    def check(changes):
        table = SOUND[kind]
        for change in changes:
            try:
                table = change(table)
            except Exception:  # pandas itself refuses some changes of changed tables
                continue
        before = table.copy()
        try:
            numbered = Names.numbered(EDGE_OF_DEVICE.tolist())
            checked = check_manifest(table, DATA, names or numbered)
        except InputError as error:
            assert str(error).isprintable()
            return
        pd.testing.assert_frame_equal(table, before)
        assert {name: str(dtype) for name, dtype in checked.dtypes.items()} == {
            name: "str" if name in ("dataset", "split") else "int64" for name in checked
        }
        said = {
            int(sample): (split, int(label), _said(device, names))
            for sample, split, label, device in zip(
                table["sample"], table["split"], table["label"], table["device"], strict=True
            )
        }
        rows = checked[["split", "label", "device"]].itertuples(index=False, name=None)
        assert dict(zip(checked["sample"], rows, strict=True)) == said
        assert len(said) == len(table)
        holders = {device for split, _, device in said.values() if split == "train"}
        assert holders == {0, 1, 2}
        assert all(device == CLOUD for split, _, device in said.values() if split == "test")
        assert all(DATA.labels[sample] == label for sample, (_, label, _) in said.items())

    check()


def test_two_numbers_of_one_name_are_never_guessed():
    """`1` is the device of that name, however its column came to be of numbers."""
    names = TREES["names that are numbers"]
    table = SOUND["names that are numbers"]
    as_numbers = table.assign(device=table["device"].astype("int64"))
    one, other = (check_manifest(each, DATA, names) for each in (table, as_numbers))
    pd.testing.assert_frame_equal(one, other)
    assert set(other.loc[other["split"] == "train", "device"]) == {0, 1, 2}
