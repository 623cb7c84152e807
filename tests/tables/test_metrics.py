"""Metrics that need no code of one's own, for all records and by client."""

import numpy as np
import pytest
from tests.tables.test_table import CONTENT, rows_of

from m2fdp import Experiment, load_config
from m2fdp.core.errors import InputError
from m2fdp.own.metrics import own_metrics, own_values

# The chances of the second of two classes are 1/2, 1/3, 3/4 and 1/4.
SCORES = np.log([[1, 1], [2, 1], [1, 3], [3, 1]])
LABELS = np.array([1, 0, 1, 1])
BY_HAND = {
    "balanced_accuracy": (1 / 3 + 1) / 2,  # equal scores are answered by the first class
    "auc": 2 / 3,  # of three pairs the one of 1/4 and 1/3 is in the wrong order
    "average_precision": (1 + 1 + 3 / 4) / 3,
    "f1": (2 / 4 + 2 / 4) / 2,
    "log_loss": -np.log([1 / 2, 2 / 3, 3 / 4, 1 / 4]).mean(),
    "brier": np.mean([1 / 4, 1 / 9, 1 / 16, 9 / 16]),
}


@pytest.mark.parametrize(("name", "expected"), BY_HAND.items())
def test_metrics_of_two_classes_by_hand(name, expected):
    found = own_values(own_metrics([name]), LABELS, SCORES, np.zeros(4))
    assert found == {name: pytest.approx(expected)}


# Three records of three classes, each answered rightly with chance 1/2, and 1/4 for each other.
OF_THREE = {
    "balanced_accuracy": 1.0,
    "auc": 1.0,
    "average_precision": 1.0,
    "f1": 1.0,
    "log_loss": np.log(2),
    "brier": 1 / 4 + 2 / 16,
}


@pytest.mark.parametrize(("name", "expected"), OF_THREE.items())
def test_metrics_of_three_classes_by_hand(name, expected):
    scores = np.log(1 + np.eye(3))
    found = own_values(own_metrics([name]), np.arange(3), scores, np.zeros(3))
    assert found == {name: pytest.approx(expected)}


def test_an_unknown_name_gets_those_that_are_known():
    with pytest.raises(InputError, match=r"'aucc': is unknown; valid are .*did you mean auc\?"):
        own_metrics(["aucc"])


def test_by_client_adds_up_to_the_whole():
    keys = {"training.rounds": 3, "training.metrics": ["auc", "log_loss"]}
    experiment = Experiment.from_frame(rows_of(200), CONTENT, keys)
    trained = experiment.train()
    by_client = experiment.by_client(trained.state_dict)
    assert set(by_client) == {"client", "records", "accuracy", "loss", "auc", "log_loss"}
    assert by_client["accuracy"].is_monotonic_increasing
    weights = by_client["records"] / by_client["records"].sum()
    for name, value in (("accuracy", trained.accuracy), ("loss", trained.loss)):
        assert (weights * by_client[name]).sum() == pytest.approx(value)


def test_a_client_with_one_class_has_no_auc():
    frame = rows_of(200)
    frame.loc[frame["hospital"] == "Basel", "ill"] = 0
    experiment = Experiment.from_frame(
        frame, CONTENT, {"training.rounds": 1, "training.metrics": ["auc"]}
    )
    found = experiment.by_client(experiment.train().state_dict).set_index("client")["auc"]
    assert np.isnan(found["Basel"]) and np.isfinite(found["Bern"])


def test_data_without_clients_have_no_such_table():
    config = load_config({"training.rounds": 1, "algorithm": "hfl"})
    experiment = Experiment.from_config(config)
    assert experiment.by_client(experiment.train().state_dict).empty
