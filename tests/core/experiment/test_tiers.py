"""Experiments in tiers: what equals what to the byte, what the clock may not touch, refusals."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from tests.builders import digits, records_of

from m2fdp import load_config
from m2fdp.core.engine.training import Checkpointing
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import surprises
from m2fdp.experiment import Experiment
from m2fdp.tiers.config import PlateauConfig

SMALL = {
    "partition.scheme": "iid",
    "partition.samples_per_device": 24,
    "topology.fanouts": [4],
    "topology.trust.ratios": [],
    "training.local_aggregation": None,
    "training.rounds": 3,
    "training.batch_size": 10,
    "training.learning_rate": 0.003,
    "model.name": "resnet",
    "model.width": 2,
    "threads": 1,
}


def experiment(algorithm, **keys):
    config = load_config(SMALL, {"algorithm": algorithm}, keys)
    return Experiment.from_config(config, few_digits())


@cache
def few_digits():
    """600 to train with, and 60 to evaluate on: each evaluation is dearer than a client's epoch."""
    every = digits()
    return replace(every, images=every.images[-660:], labels=every.labels[-660:], n_train=600)


def trained(algorithm, **keys):
    return experiment(algorithm, **keys).train()


def vector(result):
    return torch.cat([tensor.flatten() for tensor in result.state_dict.values()])


def test_splitfed_trains_what_fedavg_trains_to_the_byte_in_other_seconds():
    fedavg, splitfed = trained("fedavg"), trained("splitfed")
    assert torch.equal(vector(fedavg), vector(splitfed))
    assert fedavg.metrics["accuracy"].equals(splitfed.metrics["accuracy"])
    assert not splitfed.metrics["delay_s"].equals(fedavg.metrics["delay_s"])


@pytest.mark.parametrize("algorithm", ["dtfl", "fedyogi", "fedgkt"])
def test_the_number_of_processes_changes_nothing(algorithm, monkeypatch):
    monkeypatch.setattr("m2fdp.processes.workers._WORTH_SHARING_S", 0.0)
    one, two = trained(algorithm), trained(algorithm, threads=2)
    assert torch.equal(vector(one), vector(two))
    pd.testing.assert_frame_equal(one.metrics, two.metrics)


@pytest.mark.parametrize("algorithm", ["dtfl", "fedyogi", "fedgkt"])
@pytest.mark.parametrize("after", [1, 2])
def test_a_run_that_goes_on_ends_in_the_same_bytes(monkeypatch, algorithm, after):
    """With a plateau, whose step sizes follow from the rows so far."""
    monkeypatch.setattr(PlateauConfig, "patience", 1)
    keys = {"training.plateau.factor": 0.5, "training.rounds": 4}
    kept = []
    whole = experiment(algorithm, **keys).train(checkpointing=Checkpointing(1, kept.append))
    rest = experiment(algorithm, **keys).train(start=kept[after - 1])
    assert torch.equal(vector(whole), vector(rest))
    pd.testing.assert_frame_equal(whole.metrics, rest.metrics)


def test_the_clock_moves_seconds_and_tiers_and_never_fedavgs_weights():
    usual = trained("fedavg", **{"training.rounds": 2})
    for keys in (
        {"clock.noise": 0.5},
        {"clock.profiles": [[1.0, 30.0], [0.1, 10.0]]},
        {"clock.switch_every": 1},
    ):
        other = trained("fedavg", **keys, **{"training.rounds": 2})
        assert torch.equal(vector(usual), vector(other)), keys
        assert not usual.metrics["delay_s"].equals(other.metrics["delay_s"]), keys
    tiers = [f"tier_{tier}" for tier in range(1, 8)]
    usual, other = (
        trained("dtfl", **{"clock.profiles": profiles}).metrics[tiers]
        for profiles in ([[4.0, 100.0], [0.1, 10.0]], [[0.1, 10.0]])
    )
    assert not usual.equals(other)


def test_shards_sizes_enter_tiers_and_seconds():
    """One profile for all: who has four times the records is the straggler."""
    dataset, manifest = records_of((10, 10, 40))
    keys = {"topology.fanouts": [3], "dataset.name": "npz", "clock.profiles": [[0.2, 30.0]]}
    config = load_config(SMALL, {"algorithm": "dtfl", "clock.noise": 0.0}, keys)
    course = Experiment.from_config(config, dataset, manifest).course
    fast, too, slow = course.cuts[1].tolist()
    assert fast == too > slow == 1


def test_the_two_party_protocol_is_a_backend():
    joint, apart = trained("dtfl"), trained("dtfl", **{"training.backend": "reference"})
    torch.testing.assert_close(vector(joint), vector(apart))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains_the_same_and_repeats_itself():
    there, again = (trained("dtfl", device="cuda", **{"model.norm": "group"}) for _ in range(2))
    assert torch.equal(vector(there), vector(again))
    here = trained("dtfl", **{"model.norm": "group"})
    torch.testing.assert_close(vector(there), vector(here), rtol=1e-2, atol=1e-3)


def test_a_trained_models_buffers_and_heads_are_in_its_state_dict_and_count():
    run = experiment("dtfl", **{"tiering.tiers": 2})
    result = run.train()
    names = list(result.state_dict)
    heads = {name.split(".")[1] for name in names if name.startswith("heads.")}
    assert heads == {"6", "7"}
    assert any(name.endswith("running_var") for name in names)
    evaluated = run.evaluate(result.state_dict)
    assert evaluated.accuracy == result.accuracy
    frozen = dict(result.state_dict)
    frozen |= {n: torch.ones_like(t) for n, t in frozen.items() if n.endswith("running_var")}
    assert run.evaluate(frozen).loss != evaluated.loss


@pytest.mark.parametrize("algorithm", ["dtfl", "fedavg", "fedgkt"])
def test_cnn12_trains_in_three_tiers_or_none_on_its_own_clock(algorithm):
    keys = {"model.name": "cnn12", "model.channels": [2, 3, 4], "model.width": 16}
    keys |= {"tiering.tiers": 3} if algorithm == "dtfl" else {}
    metrics = trained(algorithm, **keys, **{"clock.model": "trained"}).metrics
    assert (metrics["round_s"] > 0).all()
    if algorithm == "dtfl":
        assert set(metrics.filter(like="tier_")) == {"tier_1", "tier_2", "tier_3"}
        assert metrics["loss"].iloc[-1] < metrics["loss"].iloc[0]


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["fedavg", "dtfl", "fedyogi", "fedgkt"])
def test_it_learns(algorithm):
    """Digits to 60 % in 12 rounds of 40 records a client; chance is 10 %."""
    keys = {"partition.samples_per_device": 120, "training.rounds": 12, "model.width": 4}
    assert trained(algorithm, **keys, **{"training.learning_rate": 0.01}).accuracy > 0.6


@pytest.mark.parametrize("algorithm", ["dtfl", "splitfed"])
def test_the_host_sees_activations_and_labels_and_everybodys_epsilon_is_infinite(algorithm):
    ledger = experiment(algorithm).ledger().set_index("kind")
    assert np.isinf(ledger["epsilon"]).all()
    for kind in ("servers", "cloud", "uplinks"):
        assert "activations and labels of every record" in ledger.loc[kind, "sees"]
    assert ledger.loc["siblings", "sees"] == "un-noised models"
    assert not experiment("fedavg").ledger()["sees"].str.contains("activations").any()


def test_fedgkts_host_sees_logits_too_and_no_model():
    ledger = experiment("fedgkt").ledger().set_index("kind")
    assert np.isinf(ledger["epsilon"]).all()
    for kind in ("servers", "cloud", "uplinks"):
        assert ledger.loc[kind, "sees"] == "activations, logits and labels of every record"
    assert "logits of the server's model for their own records" in ledger.loc["siblings", "sees"]
    assert "logits of the server's model for every record" in ledger.loc["downlinks", "sees"]


def test_a_model_of_fedgkt_holds_all_clients_and_counts_as_it_was_trained():
    run = experiment("fedgkt", **{"training.rounds": 2})
    result = run.train()
    assert {name.split(".")[1] for name in result.state_dict if name.startswith("clients")} == {
        *"0123"
    }
    evaluated = run.evaluate(result.state_dict)
    assert (evaluated.accuracy, evaluated.loss) == (result.accuracy, result.loss)
    counts = run.confusion_matrix(result.state_dict).to_numpy()
    assert np.trace(counts) / counts.sum() == pytest.approx(result.accuracy)


@pytest.mark.parametrize("key", ["patch_shuffling", "distance_correlation"])
def test_means_against_leakage_promise_nothing(key):
    value = {"patch_shuffling": True, "distance_correlation": 0.5}[key]
    shuffled = experiment("dtfl", **{f"leakage.{key}": value}).ledger()
    said = shuffled["sees"].str.contains("their places shuffled").sum()
    assert said == (3 if key == "patch_shuffling" else 0)
    assert np.isinf(shuffled["epsilon"]).all()


@pytest.mark.parametrize(
    ("algorithm", "keys", "words"),
    [
        ("dtfl", {"tiering.static_tier": 2}, "schedule: static and static_tier need each other"),
        ("dtfl", {"tiering.profile": "paper", "tiering.tiers": 5}, "knows tiers: 6 and 7 only"),
        ("dtfl", {"model.depth": 50}, "18 b \\+ 2 layers"),
        ("dtfl", {"options.tau": 1e-3}, "options.tau = 0.001"),
        ("fedgkt", {"options.temperature": 2.0}, "options.temperature = 2.0"),
    ],
)
def test_refusals_in_one_line(algorithm, keys, words):
    with pytest.raises(InputError, match=words) as caught:
        experiment(algorithm, **keys)
    assert "\n" not in str(caught.value)


def surprises_of(algorithm="dtfl", **keys):
    one = experiment(algorithm, **keys)
    return surprises(one.config, one.plan)


def test_steps_of_adam_that_are_gradient_descents_are_told_of():
    (line,) = surprises_of(**{"training.learning_rate": 0.5})
    assert line.startswith("training.learning_rate = 0.5 is far above D's 0.001")
    assert not surprises_of()


def test_a_tier_that_ds_table_2_has_not_is_told_of():
    (line,) = surprises_of(**{"tiering.profile": "paper"})
    assert line.startswith("tiering.profile = paper: D's Table 2 has 6 tiers, and the times of the")
    assert not surprises_of(**{"tiering.profile": "paper", "tiering.tiers": 6})
    oracle = {"tiering.profile": "paper", "tiering.schedule": "oracle"}
    assert not surprises_of(**oracle)  # which knows the times


def test_batch_norm_over_one_number_is_refused():
    """Digits of 8 x 8 with a strided stem end in a single place."""
    keys = {"model.stem_stride": 2, "partition.samples_per_device": 21}
    with pytest.raises(InputError, match="leaves batches of one record"):
        experiment("dtfl", **keys).check()
    experiment("dtfl", **keys | {"model.norm": "group"}).check()
    experiment("dtfl", **keys | {"training.batch_size": 11}).check()
