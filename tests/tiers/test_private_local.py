"""Epochs of clients whose server nobody trusts, in the engine's own rounds."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from tests.builders import experiment_of, last_state

from m2fdp.core.algorithms import ALGORITHMS
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.errors import InputError
from m2fdp.core.streams import seeded
from m2fdp.experiment import Experiment
from m2fdp.tiers.algorithms.dtfl_dp import DTFL_DP
from m2fdp.tiers.local import Client, Trainer, local_training
from m2fdp.tiers.private_local import build_private_trainer
from m2fdp.tiers.split_steps import Splits

SETTING = {
    "algorithm": "dtfl_dp",
    "model.name": "cnn12",
    "model.channels": [3, 4, 5],
    "topology.fanouts": [4],
    "topology.trust.ratios": [],
    "training.rounds": 2,
    "training.local_aggregation": None,
    "training.local_epochs": 2,
    "training.batch_size": 8,
    "training.learning_rate": 1e-3,
    "partition.samples_per_device": 20,
    "tiering.tiers": 3,
    "clock.model": "trained",
    "privacy.adjacency": "zero_out",
    "privacy.delta": 1e-3,
    "threads": 1,
}


def private(**keys) -> Experiment:
    return experiment_of(SETTING, keys)


@pytest.mark.parametrize("tier", [1, 2, 3, 4])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_without_noise_and_clipping_epochs_are_those_of_training_without_privacy(tier, optimizer):
    experiment = private(**{"training.optimizer": optimizer, "training.learning_rate": 1e-2})
    simulation = experiment.simulation()
    simulation = replace(
        simulation,
        mechanisms=tuple(
            replace(
                each,
                noise=replace(each.noise, clients=None),
                clipping=replace(each.clipping, record_norm=1e6),
            )
            for each in simulation.mechanisms
        ),
    )
    settings = local_training(experiment.config, 20)
    # Both parts have all of a norm that nothing reaches.
    splits = Splits(np.full((2, 4), tier), 0.5, 1.0)
    shards = simulation.shards
    client = Client(1, slice(20, 40), tier)
    arguments = experiment.model.initial_vector(), (shards.features, shards.labels), client, 1e-2
    draws = simulation.randomness.sampling, 1
    update = build_private_trainer(simulation, splits, settings).update(*arguments, draws)
    other = Trainer(experiment.model, settings, shards.features).update(*arguments, draws)
    start = experiment.model.initial_vector()
    assert float((other - start).norm()) > 1e-2
    torch.testing.assert_close(update, other, rtol=1e-3, atol=2e-4)


def heard(experiment: Experiment) -> tuple[list, list]:
    """The activations and gradients of every batch, (device, values) each."""
    shards = experiment.shards()
    silent = Shards(torch.zeros_like(shards.features), shards.labels, shards.sizes, shards.rates)
    process = experiment.process(
        experiment.simulation(shards=silent, randomness=seeded(0, b"heard"))
    )
    trainer = process.executor.trainer
    batches = []
    trainer.splitter = replace(
        trainer.splitter,
        host=lambda device, sent, gradient: batches.append(
            (device, sent.clone(), gradient.clone())
        ),
    )
    last_state(process, experiment.run_plan.rounds)
    return batches


def test_every_record_is_sent_once_an_epoch_and_sums_have_one_noise_whatever_their_size():
    """Black images: what is heard of activations is a function of biases and noise, so its spread
    over the records of a batch is the noise's; 5 sigma. The last batch has 4 of 20 records."""
    experiment = private(
        **{"privacy.epsilon": 0.5, "tiering.schedule": "static", "tiering.static_tier": 1}
    )
    batches = heard(experiment)
    sizes = [len(sent) for device, sent, _ in batches if device == 0]
    assert sizes == [8, 8, 4] * 2 * 2  # epochs, rounds
    clients = experiment.calibrate().mechanism.noise.clients
    spread = np.concatenate(
        [
            (sent - sent.mean(0)).flatten().numpy() * sqrt(len(sent) / (len(sent) - 1))
            for _, sent, _ in batches
        ]
    )
    n = len(spread)
    assert abs(spread.std() / clients.activations[0] - 1) < 5 / sqrt(2 * n)
    unit = experiment.config.privacy.clipping_norm / 8
    zeta = clients.gradients[0] / unit
    for size in (8, 4):
        # Of weights that black images have no gradient in: the first convolution's.
        values = torch.cat([g[:27] for _, sent, g in batches if len(sent) == size]).numpy()
        deviation = zeta * experiment.config.privacy.clipping_norm / size
        assert abs(values.std() / deviation - 1) < 5 / sqrt(2 * len(values))
    first, second = batches[0][2], batches[1][2]
    assert not torch.allclose(first, second)


def test_a_run_keeps_its_promise_whatever_the_number_of_processes():
    experiment = private()
    trained = experiment.train()
    assert trained.epsilon == pytest.approx(4.0, rel=1e-3)
    assert experiment.calibrate().mechanism.ledger.plans[0].layers == (None, 0)  # two epochs
    shared = private(threads=2).train()
    for name, value in trained.state_dict.items():
        assert torch.equal(value, shared.state_dict[name])


def test_randomised_labels_are_what_both_parts_are_trained_by():
    experiment = private(**{"privacy.labels": "randomised", "privacy.label_epsilon": 0.5})
    truth = experiment.shards().labels
    drawn = experiment.simulation().shards.labels
    assert 0.2 < float((truth == drawn).float().mean()) / (np.exp(0.5) / (np.exp(0.5) + 9)) < 3
    assert torch.equal(drawn, experiment.simulation().shards.labels)
    assert experiment.calibrate().mechanism.epsilon(2) <= 4.0


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"model.name": "resnet", "model.channels": None, "tiering.tiers": 7}, "model.norm"),
        ({"leakage.patch_shuffling": True}, "leakage"),
        ({"leakage.distance_correlation": 0.5}, "leakage"),
        ({"privacy.adjacency": "add_remove"}, "privacy.adjacency"),
        ({"privacy.mechanism": "upload"}, "privacy.mechanism"),
        ({"training.participants": 2}, "training.participants"),
    ],
)
def test_what_has_no_promise_is_refused_in_one_line(keys, key):
    with pytest.raises(InputError) as caught:
        private(**keys)
    assert caught.value.key == key
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda plan: replace(plan, network=replace(plan.network, splits=None)), "algorithm"),
        (
            lambda plan: replace(plan, schedule=replace(plan.schedule, local_steps=1)),
            "training.local_epochs",
        ),
    ],
    ids=["nobody splits", "a round for its epochs"],
)
def test_an_own_algorithm_whose_epochs_nobody_noises_or_counts_is_refused(monkeypatch, change, key):
    own = replace(DTFL_DP, name="own", plan=lambda given: change(DTFL_DP.plan(given)))
    monkeypatch.setitem(ALGORITHMS, "own", own)
    with pytest.raises(InputError) as caught:
        private(algorithm="own")
    assert caught.value.key == key


def test_the_summary_says_how_records_and_labels_come_to_the_server():
    summary = private().summary()
    assert summary["sampling"] == "epochs"
    assert summary["labels"] == "public"
    assert summary["epsilon_by_observer"]["labels"] == "inf"
    assert any("its label is public" in line for line in summary["assumptions"])
    trusted = {
        "algorithm": "m2fdp_tiers",
        "topology.fanouts": [2, 2],
        "topology.trust.ratios": [1.0],
    }
    epochs = {"training.local_epochs": 1}
    plain = private(**trusted, **epochs).summary()
    assert plain["sampling"] == "poisson"
    assert "labels" not in plain


def test_zones_whose_servers_read_activations_have_no_table_of_sums_of_noise():
    """A server's part of a model is made of one device's activations: no other device's noise
    hides it, and the table would give the cloud an epsilon that is too small."""
    steps = {
        "algorithm": "m2fdp_tiers",
        "topology.fanouts": [2, 2],
        "training.local_epochs": 1,
        "training.local_steps": 1,
    }
    anyone = private(**steps, **{"topology.trust.ratios": [0.0], "tiering.offload_to": "anyone"})
    assert anyone.zones_table().empty
    assert len(set(anyone.ledger().loc[lambda t: t["kind"] != "labels", "epsilon"])) == 1
    assert not private(**steps, **{"topology.trust.ratios": [1.0]}).zones_table().empty
