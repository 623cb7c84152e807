"""Simulations as the pipelines put them together: what is shared between two runs, and what not."""

import json
from dataclasses import replace
from pathlib import Path

import mlflow
import pytest
import torch
from kedro.config import OmegaConfigLoader

from m2fdp.config import parse_config
from m2fdp.data.sources import load_dataset
from m2fdp.pipelines.data.nodes import split
from m2fdp.pipelines.privacy.nodes import calibrate, plan_rounds
from m2fdp.pipelines.simulating import configured_process
from m2fdp.pipelines.topology.nodes import lay_out_network
from m2fdp.privacy.mechanisms import silence
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.streams import KeyedStreams, SecureStreams

REPOSITORY = Path(__file__).parents[2]
ONE_STEP = {
    "algorithm": "hfl_dp",
    "topology": {"fanouts": "4|3"},
    "training": {"rounds": 1, "local_steps": 1, "local_aggregation": None, "batch_size": 20},
}


def merged(one, other):
    result = dict(one)
    for key, value in other.items():
        nested = isinstance(value, dict) and isinstance(one.get(key), dict)
        result[key] = merged(one[key], value) if nested else value
    return result


@pytest.fixture(scope="module")
def assemble():
    """A function that makes the simulation of a configuration, node by node."""
    base = OmegaConfigLoader(REPOSITORY / "conf", base_env="base", default_run_env="base")

    def assemble(changes=None, change_data=lambda dataset: dataset):
        config = parse_config(merged(merged(base["parameters"], ONE_STEP), changes or {}))
        dataset = change_data(load_dataset(config.dataset))
        plan = lay_out_network(config.algorithm, config.topology, config.training, config.seed)
        manifest = split(
            dataset,
            config.partition,
            config.topology,
            config.model,
            config.training,
            config.privacy,
            config.seed,
        )
        parameters = config.model_dump()
        run_plan = plan_rounds(plan, dataset, manifest, parameters)
        mechanisms, _, _ = calibrate(
            plan, run_plan, manifest, config.training, config.privacy, config.threat
        )
        return configured_process(run_plan.networks, mechanisms, dataset, manifest, config)

    return assemble


def model_of(process):
    """The global model after one round of one step."""
    return process.round(process.start(), RoundPlan((0,), 0.5)).weights.double()


def without_noise(process):
    simulation = process.simulation
    mechanism, network = simulation.mechanisms[0], simulation.networks[0]
    quiet = replace(mechanism, noise=silence(network, mechanism.lock_step))
    return replace(process, simulation=replace(simulation, mechanisms=(quiet,)))


def noise_in(process):
    """The noise in the model after one round, in standard deviations."""
    noise = model_of(process) - model_of(without_noise(process))
    return noise / noise.std()


def alike(one, other):
    """How far two noises are the same: 1 = wholly."""
    return abs(float(noise_in(one) @ noise_in(other))) / len(noise_in(one))


def test_two_epsilons_do_not_cancel_each_others_noise(assemble):
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
def test_noise_differs_wherever_a_release_does(assemble, changes):
    """M = 640: an accidental correlation of 0.25 has a probability below 1e-9."""
    assert alike(assemble(), assemble(changes)) < 0.25


def test_noise_differs_where_a_file_has_changed_under_its_name(assemble):
    assert alike(assemble(), assemble(change_data=darker)) < 0.25


@pytest.mark.parametrize(
    "changes",
    [
        {"cell": "other", "threads": 2, "resume": True},
        {"training": {"chunk_size": 3, "checkpoint_every": None}},
        {"training": {"evaluate_every": 5}, "audit": {"repetitions": 50}},
        {"dataset": {"root": "elsewhere"}, "resources": {"step_energy_j": 2.0}},
    ],
    ids=str,
)
def test_noise_is_the_same_where_the_releases_are(assemble, changes):
    assert torch.equal(model_of(assemble()), model_of(assemble(changes)))


def test_with_a_controller_what_it_decides_by_counts(assemble):
    controlled = {"algorithm": "m2fdp", "control": {"enabled": True, "smoothness": 1.0}}
    keys = [
        assemble(merged(controlled, changes)).simulation.randomness.noise
        for changes in (
            {},
            {"resources": {"step_energy_j": 2.0}},
            {"control": {"step_size_factor": 3.0}},
        )
    ]
    assert len(set(keys)) == 3


def test_only_noise_depends_on_more_than_the_seed(assemble):
    one, other = assemble(), assemble({"algorithm": "pedpfl", "privacy": {"epsilon": 1.0}})
    draws, others = one.simulation.randomness, other.simulation.randomness
    assert draws.sampling == others.sampling == KeyedStreams(0)
    assert draws.noise != others.noise


def test_entropy_draws_all_that_the_promise_rests_on(assemble, kedro_run, project, monkeypatch):
    """Splits and initial weights stay the seed's; minibatches, participants and noise are not."""
    used = set()
    keyed = KeyedStreams.generator

    def listening(self, purpose, *indices):
        used.add(purpose)
        return keyed(self, purpose, *indices)

    monkeypatch.setattr(KeyedStreams, "generator", listening)
    params = (
        "topology.fanouts=2|3,training.rounds=2,training.local_steps=2,training.batch_size=16,"
        "training.participants=2,privacy.secure_rng={}"
    )
    models = []
    for secure in ("true", "true", "false"):
        used.clear()
        result = kedro_run("--params", params.format(secure))
        assert result.exit_code == 0, result.output
        models.append((project / "data/06_models/single/model.pt").read_bytes())
        drawn = {"minibatch", "participants", "step-noise", "summed-noise"}
        assert used & drawn == (set() if secure == "true" else drawn)
        assert "partition-records" in used
        summary = json.loads(
            (project / "data/08_reporting/single/privacy_summary.json").read_text()
        )
        said = " ".join(summary["assumptions"])
        assert ("the seed is secret" in said) == ("seeded generator" in said) == (secure == "false")
        assert ("rounding of noise" in said) == (secure == "true")
        (run, *_) = mlflow.search_runs(search_all_experiments=True, output_format="list")
        assert run.data.params["privacy.secure_rng"] == secure.title()
    assert len(set(models)) == 3
    draws = assemble({"privacy": {"secure_rng": True}}).simulation.randomness
    assert draws.sampling == draws.noise == SecureStreams()
