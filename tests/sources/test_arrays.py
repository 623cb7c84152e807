"""Arrays of a user's own in a file: how they are found, what labels and clients become."""

import numpy as np
import pytest

from m2fdp import Experiment, load_config
from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, size=(60, 6, 6), dtype=np.uint8)
Y = np.resize([0, 1, 2], 60)
# (images, labels), to train and to test on.
PARTS = (X[:40], Y[:40], X[40:], Y[40:])
BELOW_ONE = {"topology": {"fanouts": [3], "trust": {"ratios": None}}}


def saved(tmp_path, **arrays):
    np.savez(tmp_path / "own.npz", **arrays)
    return DatasetConfig(name="npz", root=str(tmp_path / "own.npz"))


def plain(**changes):
    return dict(zip(("x_train", "y_train", "x_test", "y_test"), PARTS, strict=True)) | changes


@pytest.mark.parametrize(
    "names",
    [
        "x_train y_train x_test y_test",
        "train_images train_labels test_images test_labels",
        "X_train y_train X_test y_test",
        "trainX trainY testX testY",
        "train.data train.targets test.data test.targets",
        "features_training label_training features_testing label_testing",
    ],
)
def test_arrays_are_found_by_parts_of_their_names(names, tmp_path):
    dataset = load_dataset(saved(tmp_path, **dict(zip(names.split(), PARTS, strict=True))))
    assert np.array_equal(dataset.images[..., 0], X) and dataset.labels.tolist() == Y.tolist()
    assert (dataset.n_train, dataset.n_classes, dataset.notes) == (40, 3, ())


def test_medmnist_is_read_as_it_is(tmp_path):
    """Colour, labels (N, 1) of uint8; the validation arrays are left out, and that is said."""
    colour, labels = np.repeat(X[..., None], 3, axis=3), Y[:, None].astype(np.uint8)
    arrays = {
        "train_images": colour[:30],
        "val_images": colour[30:40],
        "test_images": colour[40:],
        "train_labels": labels[:30],
        "val_labels": labels[30:40],
        "test_labels": labels[40:],
    }
    config = saved(tmp_path, **arrays)
    dataset = load_dataset(config)
    assert dataset.images.shape == (50, 6, 6, 3) and dataset.n_train == 30
    assert dataset.notes == (f"of {config.root} nobody reads val_images, val_labels",)
    keys = {"dataset.name": "npz", "dataset.root": config.root, "training.rounds": 1}
    small = BELOW_ONE | {"training.local_aggregation": None}
    experiment = Experiment.from_config(load_config(keys, small))
    assert dataset.notes[0] in experiment.warnings()
    assert experiment.summary()["guarantee"] == "verified"  # whole numbers, scaled by 255 here


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1, 2, 3], "1, 2, 3"),
        ([0, 3, 9], "0, 3, 9"),
        ([-1, 0, 1], "-1, 0, 1"),
        ([1.0, 2.0, 3.0], "1, 2, 3"),
        (["cat", "dog", "owl"], "cat, dog, owl"),
        ([b"cat", b"dog", b"owl"], "cat, dog, owl"),
        ([False, True, True], "False, True"),
    ],
)
def test_labels_are_numbered_in_their_order(values, said, tmp_path):
    labels = np.array(values)[Y]
    dataset = load_dataset(saved(tmp_path, **plain(y_train=labels[:40], y_test=labels[40:])))
    expected = np.minimum(Y, 1) if dataset.n_classes == 2 else Y
    assert dataset.labels.tolist() == expected.tolist()
    last = dataset.n_classes - 1
    assert dataset.notes == (f"the labels {said} are the classes 0 to {last}",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_images": X}, "x_train and train_images may both be x_train; it has x_train, y_tr"),
        (
            {"y_test": np.resize([0, 7], 20)},
            "y_test has the label 7; valid: those of y_train, 0, 1",
        ),
        ({"y_test": np.resize(["a"], 20)}, "y_train has type int64 and y_test <U1; valid: numbers"),
        ({"y_train": np.full(40, 0.5)}, "y_train has the value 0.5; valid: whole numbers, texts"),
        ({"y_train": np.full(40, np.nan)}, "y_train has the value nan"),
        ({"y_train": np.resize(["a", ""], 40)}, "y_train has an empty text"),
        ({"y_train": np.zeros(40, "datetime64[s]")}, "y_train has type datetime64"),
        (
            {"y_train": np.eye(40)},
            r"y_train has shape \(40, 40\).*as y_train.argmax\(1\) of one-hot",
        ),
        ({"y_train": np.zeros(40), "y_test": np.zeros(20)}, "1 distinct label from 0 to 0"),
        ({"client_train": np.arange(7)}, r"client_train has shape \(7,\); valid: one .*\(40,\)"),
    ],
)
def test_what_can_mean_nothing_is_refused_in_one_line(changes, words, tmp_path):
    config = saved(tmp_path, **plain(**changes))
    with pytest.raises(InputError, match=words) as refusal:
        load_dataset(config)
    assert "\n" not in str(refusal.value)


def test_other_names_are_refused_with_those_that_are_there_and_those_that_would_do(tmp_path):
    with pytest.raises(InputError) as refusal:
        load_dataset(saved(tmp_path, a=X, b=Y))
    assert str(refusal.value).endswith(
        "lacks x_train, y_train, x_test, y_test; it has a, b; valid: x_train, y_train, x_test, "
        "y_test, or words in their place, such as train_images, train_labels"
    )


CLIENTS = np.array(["n10", "n9", "n2"])[np.arange(60) // 2 % 3]


def of_clients(tmp_path, topology, **arrays):
    root = saved(tmp_path, **plain(client_train=CLIENTS[:40], **arrays)).root
    keys = {"dataset": {"name": "npz", "root": root}, "partition.scheme": "column"}
    training = {"training.rounds": 1, "training.local_aggregation": None}
    return Experiment.from_config(load_config(keys, training, topology))


BY_NAME = {
    "topology": {
        "fanouts": None,
        "edges": [["cloud", name] for name in ("n9", "n2", "n10")],
        "trust": {"ratios": None},
    }
}


@pytest.mark.parametrize("topology", [BELOW_ONE, BY_NAME], ids=["by number", "by name"])
def test_an_array_names_the_devices(topology, tmp_path):
    """Without names in the topology the clients are its devices, n2 before n10."""
    experiment = of_clients(tmp_path, topology, client_test=CLIENTS[40:])
    held = experiment.manifest.query("split == 'train'")
    assert held["sample"].groupby(held["device"], sort=False).apply(list).to_list() == [
        np.flatnonzero(CLIENTS[:40] == name).tolist() for name in ("n2", "n9", "n10")
    ]
    trained = experiment.train()
    table = experiment.by_client(trained.state_dict).set_index("client")
    assert table.records.to_dict() == {"n2": 8, "n9": 6, "n10": 6}


def test_whose_test_records_are_may_stay_unsaid(tmp_path):
    experiment = of_clients(tmp_path, BELOW_ONE)
    assert experiment.by_client(experiment.train().state_dict).empty


def test_a_tree_of_other_size_is_refused_with_the_one_that_would_do(tmp_path):
    words = "records are of 3 clients, and topology has 4 devices; valid: topology.fanouts=3"
    with pytest.raises(InputError, match=words):
        of_clients(tmp_path, {"topology.fanouts": [2, 2]}).check()
