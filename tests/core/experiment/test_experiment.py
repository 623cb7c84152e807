"""The assembly room by its public methods."""

import io
import math
import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from tests.builders import digits, experiment_of

from m2fdp import load_config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.engine.execution import available_cores
from m2fdp.core.engine.training import Checkpointing, Evaluation, Listener, one_class_only
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.mechanisms import silence
from m2fdp.core.streams import seeded
from m2fdp.experiment import Experiment
from m2fdp.features.maps import network_source
from m2fdp.progress import progress_bar

SMALL = {
    "topology": {"fanouts": "4|3"},
    "training": {"rounds": 3, "local_steps": 2, "local_aggregation": {1: 1}},
    "threads": 1,
}
UPLOAD = {"privacy": {"mechanism": "upload"}}
PAPER = {"privacy": {"mechanism": "upload", "calibration": "paper"}}


def equal(one, other):
    """Two trained models and their metrics, to the bit."""
    pd.testing.assert_frame_equal(one.metrics, other.metrics, check_exact=True)
    return all(torch.equal(value, other.state_dict[name]) for name, value in one.state_dict.items())


def test_an_experiment_trains_what_it_promises():
    experiment = experiment_of(SMALL)
    trained = experiment.train()
    assert trained.rounds == 3 and trained.warning is None
    assert trained.metrics["round"].tolist() == [1, 2, 3]
    assert 3.9 < trained.epsilon <= 4
    summary = experiment.summary()
    assert summary["epsilon_verified"] == trained.epsilon
    assert summary["records_in_clear"] == {"validation": 0, "test": 359}
    ledger = experiment.ledger()
    assert ledger.loc[ledger["distrusted"], "epsilon"].max() == trained.epsilon
    assert experiment.epsilon_over_rounds()["round"].tolist() == [1, 2, 3]
    assert experiment.evaluate(trained.state_dict).accuracy == trained.accuracy
    counts = experiment.confusion_matrix(trained.state_dict).to_numpy()
    assert counts.diagonal().sum() / counts.sum() == pytest.approx(trained.accuracy)
    assert "m2fdp on digits: 12 devices, softmax, 3 rounds of 2 steps" in repr(experiment)
    assert f"3 rounds: accuracy {trained.accuracy:.4f}" in repr(trained)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (({},), "config = 'dict': is no Config; load_config makes one"),
        ((load_config(), 3), "dataset = 'int': is no m2fdp.core.data.dataset.Dataset"),
    ],
)
def test_what_is_no_configuration_or_data_set_is_one_line(given, words):
    with pytest.raises(InputError, match=words):
        Experiment.from_config(*given)


def test_the_summary_tells_the_network_that_features_come_from():
    changes = {"features": {"map": "contrastive", "dimension": 20}}
    summary = experiment_of(SMALL | changes).summary()
    assert summary["features_fitted_on"].items() > network_source().items()
    assert any("contrastive network trained on drawings" in each for each in summary["assumptions"])


def test_what_is_trained_twice_is_the_same_whatever_is_set_around_it():
    experiment = experiment_of(SMALL)
    expected = experiment.train()
    torch.set_num_threads(2)
    assert equal(experiment.train(), expected)
    assert equal(experiment_of(SMALL).train(), expected)
    assert torch.get_num_threads() == 1


def test_no_more_processes_than_cores_share_the_steps():
    workers = experiment_of(SMALL, {"threads": 1_000_000_000}).process().executor.workers
    assert workers.count == available_cores()


def test_a_listener_hears_every_round_and_a_run_goes_on_from_what_was_kept():
    rounds, records, kept = [], [], []
    experiment = experiment_of(SMALL)
    listener = Listener(lambda done, logged, seconds: rounds.append(done), records.append)
    whole = experiment.train(listener, checkpointing=Checkpointing(1, kept.append))
    assert rounds == [1, 2, 3] and len(kept) == 3
    assert [record.accuracy for record in records] == whole.metrics["accuracy"].tolist()
    assert equal(experiment.train(start=kept[0]), whole)


def test_what_an_epsilon_is_not_worth_and_who_may_not_listen_is_told():
    weak = experiment_of(SMALL, {"privacy.epsilon": 1000.0, "privacy.delta": 1e-6})
    assert any("hardly protects anyone" in line for line in weak.warnings())
    strong = experiment_of(SMALL, {"topology.trust.ratios": [1.0]})
    assert not any("hardly" in line or "uplinks" in line for line in strong.warnings())
    (line,) = strong.exposed_links()
    assert "uplinks (ε ∞)" in line and "encrypt" in line and "threat.open_links" in line


def test_without_privacy_there_is_no_epsilon_and_nothing_to_audit():
    experiment = experiment_of(SMALL, {"algorithm": "hfl"})
    assert math.isnan(experiment.train().epsilon)
    assert experiment.summary()["guarantee"] == "none"
    assert experiment.warnings() == []
    assert "no privacy" in repr(experiment)
    with pytest.raises(InputError, match="no bound to audit"):
        experiment.audit()


def test_a_budget_trains_the_rounds_of_a_shorter_run():
    """The papers' noise grows like alpha sqrt(T), so T = 8 and T = 2 with twice the alpha are
    the same to the last bit, round by round, under the same draws.
    """
    whole = experiment_of(SMALL, PAPER, {"training": {"rounds": 8}, "privacy": {"budget": 4}})
    short = experiment_of(SMALL, PAPER, {"training": {"rounds": 2}, "privacy": {"alpha": 2}})
    draws = seeded(0, b"the same in both")
    one, other = (
        experiment.train(process=experiment.process(experiment.simulation(randomness=draws)))
        for experiment in (whole, short)
    )
    assert whole.calibrate().affordable_rounds == one.rounds == 2
    assert equal(one, other)
    assert any("training stops after 2 of 8 rounds" in line for line in whole.warnings())


def test_a_budget_that_no_round_fits_is_refused():
    experiment = experiment_of(SMALL, PAPER, {"privacy": {"budget": 0.1}})
    with pytest.raises(InputError, match=r"privacy.budget = 0.1: is passed by the first round"):
        experiment.train()


def test_a_part_that_is_replaced_is_trained():
    """Noise off, say: a mutant is a value."""
    experiment = experiment_of(SMALL)
    (mechanism,) = experiment.calibrate().mechanisms
    quiet = replace(mechanism, noise=silence(experiment.plan.network, mechanism.lock_step))
    mutant = experiment.process(experiment.simulation(mechanisms=(quiet,)))
    assert not equal_weights(experiment.train(process=mutant), experiment.train())


def equal_weights(one, other):
    return torch.equal(one.state_dict["1.weight"], other.state_dict["1.weight"])


def test_bounds_stand_beside_what_was_measured():
    experiment = experiment_of(SMALL, PAPER)
    measured = experiment.measure()
    bounds = experiment.bound(measured)
    assert bounds.by_round["round"].tolist() == measured["round"].tolist()[1:] == [1, 2, 3]
    assert bounds.by_layer["layer"].tolist() == [1, 2]
    assert bounds.summary["constants"]["n_parameters"] == 640
    assert len(bounds.warnings) == 2


CONTROLLED = {
    "control": {
        "enabled": True,
        "gap": "papers",
        "smoothness": 1.0,
        "tau": 6,
        "step_size_factor": 20,
    },
    "training": {"local_aggregation": {1: 2}},
}


def test_a_contradiction_is_refused_at_once_and_what_the_data_refuse_before_a_number():
    with pytest.raises(InputError, match="algorithm = 'fedprox'"):
        experiment_of({"algorithm": "fedprox"})
    experiment = experiment_of(SMALL, {"privacy": {"delta": 0.5}})
    for refused in (experiment.check, experiment.calibrate, experiment.train):
        with pytest.raises(InputError, match=r"privacy.delta = 0.5"):
            refused()


def test_a_split_of_ones_own():
    dealt = experiment_of(SMALL)
    own = dealt.manifest.copy()
    train = own["split"] == "train"
    own.loc[train, "device"] = own.loc[train, "sample"] % 12
    experiment = Experiment.from_config(dealt.config, digits(), own)
    assert experiment.samples.sizes.tolist() != dealt.samples.sizes.tolist()
    assert not equal_weights(experiment.train(), dealt.train())
    own.loc[train, "device"] %= 11
    with pytest.raises(InputError, match="'11 devices': topology has 12"):
        Experiment.from_config(dealt.config, digits(), own).check()


IMAGES = np.zeros((40, 8, 8, 1), dtype=np.float32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": IMAGES + 1e4}, "images ranges from 10000 to 10000; valid: floats in"),
        ({"images": IMAGES[0]}, "has (8, 8, 1) images for 40 labels"),
        ({"images": IMAGES.tolist()}, "has images of type list"),
        ({"images": IMAGES[:, 0, 0, 0]}, "images has shape (40,); valid: NxHxW"),
        ({"labels": np.full(40, 4)}, "has n_classes = 4 and labels from 4 to 4; valid: 0 to n_cl"),
        ({"n_train": 41}, "has n_train = 41; valid: 0 to 40"),
        ({"n_classes": 4.5}, "has n_classes = 4.5"),
        ({"n_classes": 10**9}, "has n_classes = 1000000000; valid: 2 to 100,000 classes"),
        ({"labels": np.ma.array(np.arange(40) % 4, mask=[1] + [0] * 39)}, "labels of type MaskedA"),
    ],
)
def test_a_given_data_set_is_checked_as_one_that_is_read(changes, words):
    given = Dataset("npz", IMAGES, np.arange(40) % 4, n_train=30, n_classes=4)
    config = load_config({"privacy.mechanism": "upload"})
    Experiment.from_config(config, given)
    with pytest.raises(InputError) as refused:
        Experiment.from_config(config, replace(given, **changes))
    line = str(refused.value)
    assert line.startswith("dataset = 'npz': ") and words in line and "\n" not in line


def test_a_given_data_set_has_the_types_of_one_that_is_read():
    images = np.linspace(0, 1, 40 * 64).reshape(40, 8, 8)
    given = Dataset("npz", images, (np.arange(40) % 4).astype(np.int32), 40, 5)
    dataset = Experiment.from_config(load_config(), given).dataset
    assert dataset.images.shape == (40, 8, 8, 1) and dataset.images.dtype == np.float32
    assert dataset.labels.dtype == np.int64
    assert Experiment.from_config(load_config(), dataset).dataset is dataset


def test_the_public_names_load_with_their_first_use():
    import m2fdp

    assert m2fdp.Experiment is Experiment
    with pytest.raises(AttributeError, match="no attribute 'Experimental'"):
        _ = m2fdp.Experimental
    assert "m2fdp" in sys.modules


def test_a_bar_shows_how_far_training_is():
    experiment = experiment_of(SMALL)
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=120, color_system=None)
    with progress_bar(3, console=console) as listener:
        trained = experiment.train(listener)
    assert "3/3" in written.getvalue()
    assert f"accuracy {trained.accuracy:.3f}, ε 4" in written.getvalue()


def test_rounds_are_planned_before_any_record_is_loaded():
    absent = {"dataset.name": "mnist", "dataset.root": "nowhere", "topology.fanouts": [100, 100]}
    experiment = Experiment.from_config(load_config(absent))
    assert len(experiment.run_plan.rounds) == 30
    with pytest.raises(InputError, match=r"dataset.root = 'nowhere'"):
        experiment.calibrate()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "training.learning_rate = 0.5: training diverged by round 1; choose a smaller one"),
        (CONTROLLED, "control.step_size_factor = 'eta 2.36': training diverged by round 1"),
    ],
)
def test_divergence_names_the_key_of_the_step_size(monkeypatch, changes, line):
    experiment = experiment_of(SMALL, changes)
    run = experiment.run()
    nothing = Evaluation(0.0, math.nan, torch.zeros(0))
    measures = replace(run.measures, evaluate=lambda weights: nothing)
    monkeypatch.setattr(Experiment, "run", lambda self, process: replace(run, measures=measures))
    with pytest.raises(InputError) as refused:
        experiment.train()
    assert str(refused.value).startswith(line)


def imbalanced(dataset):
    """Digits of two classes: 0, and every other."""
    return replace(dataset, labels=(dataset.labels > 0).astype(np.int64), n_classes=2)


@pytest.mark.parametrize("held_out_by", ["cloud", "devices"])
def test_a_model_that_answers_one_class_is_told_where_its_labels_lie_in_clear(held_out_by):
    few = {
        "training": {"rounds": 1, "local_steps": 1, "local_aggregation": None, "batch_size": None},
        "training.learning_rate": 0.5,
        "training.evaluate_on": "validation",
        "partition": {"scheme": "iid", "validation_fraction": 0.2, "held_out_by": held_out_by},
    }
    experiment = experiment_of(few, change_data=imbalanced)
    trained = experiment.train()
    counts = experiment.confusion_matrix(trained.state_dict).to_numpy()
    assert not counts[:, 0].any()
    if held_out_by == "devices":
        assert trained.warning is None
    else:
        share = f"{trained.accuracy:.3f}"
        said = f"one class only, 1: its accuracy is the share of that class, {share}"
        assert trained.warning == f"the model answers {said}"
        apart = {"training.rounds": 20, "algorithm": "hfl"}
        assert experiment_of(few, apart, change_data=imbalanced).train().warning is None


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([[0, 3], [0, 9]], "one class only, 1: its accuracy is the share of that class, 0.750"),
        ([[3, 0], [9, 0]], "one class only, 0: its accuracy is the share of that class, 0.250"),
        ([[0, 3, 0], [0, 0, 0], [0, 1, 0]], "one class only, 1: .* share of that class, 0.000"),
        ([[3, 0], [1, 8]], None),
        ([[0, 0], [0, 9]], None),  # no record is of another class
    ],
)
def test_one_class_only(counts, said):
    found = one_class_only(np.array(counts))
    assert found is None if said is None else re.fullmatch(said, found)
