"""What is shared between the draws of two experiments, and what not."""

from dataclasses import replace

import pytest
import torch
from tests.builders import experiment_of

from m2fdp.core.engine.tree_process import build_process
from m2fdp.core.privacy.mechanisms import silence
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import KeyedStreams

ONE_STEP = {
    "algorithm": "hfl_dp",
    "topology": {"fanouts": "4|3"},
    "training": {"rounds": 1, "local_steps": 1, "local_aggregation": None, "batch_size": 20},
}


def assemble(*changes, change_data=None):
    """How a run of one step is computed."""
    return experiment_of(ONE_STEP, *changes, change_data=change_data).process()


def model_of(process):
    """The global model after one round of one step."""
    return process.round(process.start(), RoundPlan((0,), 0.5)).weights.double()


def without_noise(process):
    simulation = process.simulation
    mechanism, network = simulation.mechanisms[0], simulation.networks[0]
    quiet = replace(mechanism, noise=silence(network, mechanism.lock_step))
    return build_process(replace(simulation, mechanisms=(quiet,)))


def noise_in(process):
    """The noise in the model after one round, in standard deviations."""
    noise = model_of(process) - model_of(without_noise(process))
    return noise / noise.std()


def alike(one, other):
    """How far two noises are the same: 1 = wholly."""
    return abs(float(noise_in(one) @ noise_in(other))) / len(noise_in(one))


def test_two_epsilons_do_not_cancel_each_others_noise():
    """With one noise in both, sigma_1 w_2 - sigma_2 w_1 has none."""
    one, other = (assemble({"privacy": {"epsilon": epsilon}}) for epsilon in (1.0, 2.0))
    sigma, sigma_ = (float(p.simulation.mechanisms[0].noise.steps[0]) for p in (one, other))
    assert sigma > 1.2 * sigma_
    clean = model_of(without_noise(one))
    assert torch.equal(clean, model_of(without_noise(other)))  # the same minibatches
    attacked = (sigma * model_of(other) - sigma_ * model_of(one)) / (sigma - sigma_)
    left = float((attacked - clean).norm()) / float((model_of(other) - clean).norm())
    assert left > 1


def darker(dataset):
    """The same data set with one pixel of one record another."""
    images = dataset.images.copy()
    images[0, 0, 0, 0] += 1
    return replace(dataset, images=images)


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy": {"epsilon": 2.0}},
        {"privacy": {"clipping_norm": 0.5}},
        {"privacy": {"unit": "device"}},
        {"training": {"learning_rate": 0.25}},
        {"training": {"rounds": 2}},
        {"training": {"batch_size": None}},
        {"algorithm": "pedpfl"},
        {"algorithm": "m2fdp", "topology": {"trust": {"ratios": "0.5"}}},
        {"topology": {"fanouts": "3|4"}},
        {"partition": {"scheme": "iid"}},
        {"model": {"name": "svm"}},
        {"threat": {"distrusted": "servers|cloud|public"}},
        {"seed": 1},
    ],
    ids=str,
)
def test_noise_differs_wherever_a_release_does(changes):
    """M = 640: an accidental correlation of 0.25 has a probability below 1e-9."""
    assert alike(assemble(), assemble(changes)) < 0.25


def test_two_protocols_have_noises_of_their_own():
    """The sums are the same, the runs' models are not (docs/privacy/sums.md)."""
    one, other = (
        assemble({"secure_aggregation": {"layers": "1", "protocol": protocol}})
        for protocol in ("ideal", "masks")
    )
    assert alike(one, other) < 0.25


def test_noise_differs_where_a_file_has_changed_under_its_name():
    assert alike(assemble(), assemble(change_data=darker)) < 0.25


@pytest.mark.parametrize(
    "changes",
    [
        {"cell": "other", "threads": 2, "resume": True},
        {"training": {"chunk_size": 3, "checkpoint_every": None}},
        {"training": {"evaluate_every": 5}, "audit": {"repetitions": 50}},
        {"resources": {"step_energy_j": 2.0}},
    ],
    ids=str,
)
def test_noise_is_the_same_where_the_releases_are(changes):
    assert torch.equal(model_of(assemble()), model_of(assemble(changes)))


def test_noise_is_the_same_wherever_the_files_are():
    here, there = (assemble({"dataset": {"name": "npz", "root": file}}) for file in ("a", "b"))
    assert torch.equal(model_of(here), model_of(there))


def test_where_step_sizes_wait_for_accuracy_noise_knows_the_records_it_is_measured_on():
    """Two such runs step differently from some round on. Behind one noise, the difference of what a
    server receives would be that of gradients and activations at two models, in clear."""

    def noise(factor, on, change_data=None):
        in_tiers = {
            "algorithm": "dtfl",
            "model": {"name": "cnn12"},
            "clock": {"model": "trained"},
            "tiering": {"tiers": 3},
            "topology": {"fanouts": "4", "trust": {"ratios": []}},
            "training": {
                "plateau": {"factor": factor},
                "evaluate_on": on,
                "local_aggregation": None,
            },
            "partition": {"validation_fraction": 0.1, "samples_per_device": 20},
        }
        made = experiment_of(in_tiers, change_data=change_data)
        return made.simulation().randomness.noise

    def other_test(dataset):
        images = dataset.images.copy()
        images[-1, 0, 0] += 1
        return replace(dataset, images=images)

    followed = [noise(0.9, "test"), noise(0.9, "validation"), noise(0.9, "test", other_test)]
    assert len(set(followed)) == 3
    assert noise(1.0, "test") == noise(1.0, "validation") == noise(1.0, "test", other_test)


def test_with_a_controller_what_it_decides_by_counts():
    controlled = {"algorithm": "m2fdp", "control": {"enabled": True, "smoothness": 1.0}}
    keys = [
        assemble(controlled, changes).simulation.randomness.noise
        for changes in (
            {},
            {"resources": {"step_energy_j": 2.0}},
            {"control": {"dissimilarity": 3.0}},
        )
    ]
    assert len(set(keys)) == 3


def test_only_noise_depends_on_more_than_the_seed():
    one, other = assemble(), assemble({"algorithm": "pedpfl", "privacy": {"epsilon": 1.0}})
    draws, others = one.simulation.randomness, other.simulation.randomness
    assert draws.sampling == others.sampling == KeyedStreams(0)
    assert draws.noise != others.noise
