"""Which classes there are: what a run rests on whose data set tells by its labels."""

import numpy as np
import pytest
from tests.builders import experiment_of

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
