"""LEAF's JSON: users are devices, numbers images, texts hashes."""

import json

import numpy as np
import pytest

from m2fdp import Experiment, load_config
from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.tables.encoding import hashed

RNG = np.random.default_rng(0)


def content(users, x=None, y=None):
    """`x` and `y` make one record and label of (user, place)."""
    x = x or (lambda user, place: RNG.random(16).round(3).tolist())
    y = y or (lambda user, place: place % 3)
    data = {
        user: {"x": [x(user, i) for i in range(n)], "y": [y(user, i) for i in range(n)]}
        for user, n in users.items()
    }
    return {"users": list(users), "num_samples": list(users.values()), "user_data": data}


def written(folder, **files):
    """Files `train_1` and the like, as LEAF's scripts leave them."""
    for name, what in files.items():
        split, _, number = name.partition("_")
        (folder / split).mkdir(exist_ok=True)
        (folder / split / f"all_data_{number or 0}.json").write_text(json.dumps(what))
    return DatasetConfig(name="leaf", root=str(folder))


def test_users_of_all_files_are_devices_in_a_run(tmp_path):
    root = written(
        tmp_path,
        train_0=content({"f10": 9, "f9": 6}),
        train_1=content({"f2": 12}),
        test=content({"f2": 3, "f10": 3, "f77": 4}),
    ).root
    keys = {"dataset": {"name": "leaf", "root": root}, "partition.scheme": "column"}
    tree = {"topology": {"fanouts": [3], "trust": {"ratios": None}}}
    training = {"training.rounds": 2, "training.local_aggregation": None}
    experiment = Experiment.from_config(load_config(keys, tree, training))
    dataset = experiment.dataset
    assert dataset.images.shape == (37, 4, 4, 1) and dataset.n_classes == 3
    first = json.loads((tmp_path / "train/all_data_0.json").read_text())["user_data"]["f10"]["x"][0]
    assert np.allclose(dataset.images[0].ravel(), first)
    note = "1 user with test records only: f77; they are tested on, and no devices"
    assert dataset.notes == (note,) and note in experiment.warnings()
    held = experiment.manifest.query("split == 'train'").groupby("device").size()
    assert held.tolist() == [12, 6, 9]  # f2, f9, f10
    trained = experiment.train()
    assert set(experiment.by_client(trained.state_dict).client) == {"f2", "f10", "f77"}
    promised = experiment.summary()
    assert promised["guarantee"] == "conditional"  # floats, of which nobody says what scaled them
    assert any("among the labels in dataset.root" in line for line in promised["assumptions"])


def test_one_file_gives_a_share_of_each_user_to_be_tested_on(tmp_path):
    file = tmp_path / "all.json"
    file.write_text(json.dumps(content({"a": 30, "b": 15})))
    config = DatasetConfig(name="leaf", root=str(file))
    dataset = load_dataset(config)
    assert dataset.n_train == 36
    assert sorted(dataset.clients[36:].tolist()) == ["a"] * 6 + ["b"] * 3
    assert np.array_equal(load_dataset(config).images, dataset.images)
    assert not np.array_equal(load_dataset(config, seed=1).images, dataset.images)


@pytest.mark.parametrize("fields", [False, True], ids=["Shakespeare", "Sent140"])
def test_texts_are_hashed_one_by_one(fields, tmp_path):
    def said(user, place):
        text = f"{user} says {place}"
        return ["1467", "Mon Apr 06", "NO_QUERY", user, text, "training"] if fields else text

    def label(user, place):
        return place % 2 if fields else "to be"[place % 5]

    part = content({"Hamlet": 6, "Ophelia": 5}, said, label)
    dataset = load_dataset(written(tmp_path, train=part, test=part))
    assert dataset.images.shape == (22, 1, 1024, 1) and dataset.scaled_by_constants
    alone = hashed(["Ophelia says 0"], 1024).astype(np.float32)
    assert np.array_equal(dataset.images[6].ravel(), alone[0])
    assert dataset.n_classes == (2 if fields else 5)
    assert bool(dataset.notes) != fields  # letters are numbered in their order


def broken(change):
    data = content({"a": 6, "b": 6})
    change(data["user_data"]["b"])
    return data


WRONG = {
    "a label less": (broken(lambda b: b["y"].pop()), r"the user b has 6 x and 5 y\); valid: JSON"),
    "no users": ({"data": []}, "is no file of LEAF's .KeyError: 'user_data'"),
    "a list": ([1, 2], "is no file of LEAF's"),
    "nobody": (content({}), "there is no record"),
    "ragged": (broken(lambda b: b["x"][0].pop()), "inhomogeneous"),
    "a text among numbers": (broken(lambda b: b["x"].__setitem__(0, "old")), "inhomogeneous"),
    "beyond 1": (content({"a": 6}, lambda *_: [0.0, 255.0]), "x ranges from 0 to 255"),
    "no number": (content({"a": 6}, lambda *_: [float("nan"), 0.5]), "pixels that are nan"),
    "one class": (content({"a": 6}, y=lambda *_: 4), "the label 4 alone"),
    "tokens as labels": (content({"a": 6}, y=lambda *_: [1, 2]), r"y has shape \(\d+, 2\)"),
    "fractions": (content({"a": 6}, y=lambda *_: 0.5), "y has the value 0.5"),
    "names of pictures": (content({"a": 6}, lambda *_: "000001.jpg"), "x names pictures, such as"),
    "other sizes": (
        content({"a": 6}, lambda *_: [0.5] * 4),
        r"the shapes \(2, 2, 1\), \(4, 4, 1\)",
    ),
}


@pytest.mark.parametrize(("train", "words"), WRONG.values(), ids=WRONG)
def test_what_is_no_file_of_leafs_is_refused_in_one_line(train, words, tmp_path):
    test = content({"a": 3}) if "shapes" in words else train
    with pytest.raises(InputError, match=words) as refusal:
        load_dataset(written(tmp_path, train=train, test=test))
    assert str(refusal.value).startswith("dataset.root = ") and "\n" not in str(refusal.value)


def test_a_folder_without_files_is_refused_with_what_would_do(tmp_path):
    with pytest.raises(InputError, match="no file .json in test/; valid: a folder with train/ and"):
        load_dataset(written(tmp_path, train=content({"a": 3})))
    (tmp_path / "test").mkdir()
    (tmp_path / "test/cut.json").write_text('{"user_data": {"a"')
    with pytest.raises(InputError, match="cut.json': is no file of LEAF's .JSONDecodeError"):
        load_dataset(DatasetConfig(name="leaf", root=str(tmp_path)))
