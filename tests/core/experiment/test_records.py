"""What a data set hides: test records that are trained on, records on two devices, absent classes;
and rows that are scored by an experiment that never trains."""

import math

import numpy as np
import pytest
import torch
from tests.builders import digits, experiment_of

from m2fdp import Experiment, load_config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError

CONFIG = load_config({"topology.fanouts": [2, 2], "partition.scheme": "iid", "training.rounds": 2})


def of_images(train, test, n_classes=2, labels=None):
    images = np.concatenate([train, test])
    labels = np.arange(len(images)) % n_classes if labels is None else labels
    return Dataset("npz", images, labels, len(train), n_classes)


def drawn(n, seed=0, levels=256):
    return np.random.default_rng(seed).integers(0, levels, (n, 4, 4, 1)).astype(np.uint8)


def lines(dataset):
    return [line for line in Experiment.from_config(CONFIG, dataset).warnings() if "record" in line]


def test_test_records_that_are_all_trained_on_are_refused():
    with pytest.raises(InputError, match=r"dataset.name = 'npz': has 30 records to test on, each"):
        Experiment.from_config(CONFIG, of_images(drawn(40), drawn(40)[5:35])).train()


def test_repeated_records_are_counted():
    train, test = drawn(40), np.concatenate([drawn(40)[:7], drawn(9, seed=1)])
    (line,) = lines(of_images(train, test))
    assert line.startswith("7 of the 16 records that nobody trains on are training records as well")
    assert not lines(of_images(train, drawn(9, seed=1)))
    # The second is on another device: iid deals to four of them.
    (line,) = lines(of_images(np.concatenate([train, train[:1], train[1:2]]), drawn(9, seed=1)))
    assert line.startswith("4 training records are held by several devices") or "2 training" in line


def test_records_of_few_values_are_like_others_and_nobody_is_told():
    """Black pictures, or tables of few columns that hold yes or no."""
    few = np.zeros((90, 4, 4, 1), np.uint8)
    few[:, 0, :3, 0] = drawn(90, levels=2)[:, 0, :3, 0]
    assert not lines(of_images(few[:60], few[60:]))


def test_classes_that_no_device_has_are_named():
    labels = np.tile([0, 1, 4, 7], 15)
    (line,) = lines(of_images(drawn(50), drawn(10, seed=1), 9, labels))
    assert line.startswith("5 of 9 classes have no training record, 2, 3, 5, 6, 8: models")


def test_one_class_is_no_classification():
    with pytest.raises(InputError, match=r"n_classes = 1, so that every answer is right"):
        Experiment.from_config(CONFIG, of_images(drawn(9), drawn(3, 1), 1))


def test_new_rows_are_scored_without_being_dealt():
    """Three rows of one class were refused for labels_per_device, and no row may be trained on."""
    config = load_config({"training.rounds": 2, "model.name": "softmax"})
    trained = Experiment.from_config(config, digits()).train()
    rows = digits().images[-3:], digits().labels[-3:]
    scored = Experiment.from_config(config, Dataset("new rows", *rows, 0, 10))
    whole = Experiment.from_config(config, digits()).evaluate(trained.state_dict).predictions
    assert scored.evaluate(trained.state_dict).predictions.tolist() == whole[-3:].tolist()
    assert scored.confusion_matrix(trained.state_dict).to_numpy().sum() == 3
    with pytest.raises(
        InputError, match="50 devices.*at most one device a training record, here 0"
    ):
        scored.train()


def test_without_records_to_test_on_nothing_is_trained():
    """It ended in a traceback of shared memory."""
    with pytest.raises(InputError, match=r"training.evaluate_on = 'test': needs records there"):
        Experiment.from_config(CONFIG, of_images(drawn(40), drawn(0))).train()


def test_two_classes_suit_the_default_partition():
    config = load_config({"topology.fanouts": [2, 2]})
    experiment = Experiment.from_config(config, of_images(drawn(40), drawn(9, seed=1)))
    assert experiment.samples.sizes.tolist() == [10] * 4


# A dense model's scores are products of two weights: these overflow where the weights do not.
STEEP = {
    "model.name": "dense",
    "topology.fanouts": [3, 4],
    "training.rounds": 1,
    "training.local_steps": 1,
    "training.local_aggregation": None,
    "training.learning_rate": 1e9,
    "privacy.clipping_norm": 1e9,
    "privacy.epsilon": 1e-4,
    "partition.validation_fraction": 0.2,
    "training.evaluate_on": "validation",
}


def test_a_loss_on_held_out_records_ends_no_run():
    """Else that a run has no score would tell of the records, without noise."""
    experiment = experiment_of(STEEP, {"partition.held_out_by": "devices"})
    trained = experiment.train()
    assert trained.metrics["loss"].iloc[-1] > 3e38
    assert all(torch.isfinite(value).all() for value in trained.state_dict.values())
    assert math.isfinite(experiment.score(trained.state_dict))
    assert "diverged" in trained.warning


def test_records_in_clear_do():
    with pytest.raises(InputError, match="diverged by round 1"):
        experiment_of(STEEP).train()


PARTS = {
    "topology.fanouts": [2],
    "topology.trust.ratios": [],
    "training.local_aggregation": None,
    "partition.scheme": "iid",
}


@pytest.mark.parametrize("name", ["npz", "synthetic"])
def test_that_a_class_has_no_single_record_is_told_where_labels_tell_of_it(tmp_path, name):
    """The only record of a class makes the model a row larger: one look tells that it is there."""
    rng = np.random.default_rng(0)
    labels = np.arange(68) % 2
    labels[7] = 2
    images = rng.random((68, 4, 4)).astype(np.float32)
    arrays = {"x_train": images[:60], "y_train": labels[:60]}
    np.savez(tmp_path / "own.npz", **arrays, x_test=images[60:], y_test=labels[60:])
    data = {"dataset.name": name}
    if name == "npz":
        data["dataset.root"] = str(tmp_path / "own.npz")
    told = experiment_of(PARTS, data).summary()["assumptions"]
    assert sum("which classes there are is public" in line for line in told) == (name == "npz")
