"""Steps of devices that split their model, in the engine's own rounds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.adversaries.copies import epsilon_shown
from tests.builders import experiment_of, last_state, records_of, split_scores
from torch import nn

from m2fdp import load_config
from m2fdp.core.engine.execution import ExecutionSettings
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.engine.tree_process import build_process
from m2fdp.core.models.losses import cross_entropy
from m2fdp.core.streams import seeded
from m2fdp.experiment import Experiment
from m2fdp.tiers import split_noise as splits
from m2fdp.tiers.split_models import SplitChain, SplitModel
from m2fdp.tiers.split_steps import overheard

SETTING = {
    "model.name": "cnn12",
    "model.channels": [3, 4, 5],
    "topology.fanouts": [3, 2],
    "topology.trust.ratios": [1.0],
    "training.rounds": 2,
    "training.local_steps": 2,
    "training.local_aggregation": None,
    "training.batch_size": 6,
    "partition.samples_per_device": 20,
    "privacy.delta": 1e-3,
    "threads": 1,
}


def tiered(**keys) -> Experiment:
    return experiment_of(SETTING, {"algorithm": "m2fdp_tiers"}, keys)


def weights_of(experiment: Experiment, **settings) -> torch.Tensor:
    simulation = experiment.simulation(randomness=seeded(0, b"shared by two algorithms"))
    process = build_process(simulation, ExecutionSettings(**settings))
    return last_state(process, experiment.run_plan.rounds).weights


def test_without_trusted_servers_weights_are_those_of_m2fdp_to_the_byte():
    """Bar 15, p1 = 0. Noise is keyed by the configuration, so both are given the same."""
    nobody = {"topology.trust.ratios": [0.0]}
    plain, split = experiment_of(SETTING, nobody), tiered(**nobody)
    assert (split.splits.tiers == 4).all()
    assert split.model.n_parameters == plain.model.n_parameters
    assert torch.equal(weights_of(plain), weights_of(split))
    assert plain.calibrate().mechanism.epsilon(2) == split.calibrate().mechanism.epsilon(2)


def test_with_trusted_servers_epsilon_is_that_of_m2fdp_and_rounds_take_less_time():
    """Bar 15, p1 = 1, at D's rates and profiles."""
    plain = experiment_of(SETTING)
    seconds = {}
    for ratio in (0.0, 0.5, 1.0):
        experiment = tiered(**{"topology.trust.ratios": [ratio], "topology.fanouts": [10, 5]})
        tiers = experiment.splits.tiers
        below_trusted = experiment.network.trust[1][experiment.network.tree.parents[1]]
        assert ((tiers <= 3) == below_trusted).all()
        seconds[ratio] = experiment.splits.took.max(axis=1).mean()
    assert seconds[1.0] < 0.4 * seconds[0.0]
    assert seconds[0.5] < 1.05 * seconds[0.0]
    split = tiered()
    verified = split.calibrate().mechanism.epsilon(2)
    assert verified == plain.calibrate().mechanism.epsilon(2)
    assert verified <= split.config.privacy.epsilon


def expected_step(experiment: Experiment, device: int, tier: int) -> torch.Tensor:
    """One device's sum of clipped gradients at the first weights, record by record, by autograd
    through both losses at once."""
    model, config = experiment.model, experiment.config
    shards, beta = experiment.shards(), config.privacy.client_share
    start = int(shards.sizes[:device].sum())
    rows = slice(start, start + int(shards.sizes[device]))
    total = torch.zeros(model.n_parameters)
    client = torch.zeros(model.n_parameters, dtype=torch.bool)
    for part in model.parts:
        client[part.place] = part.head == tier if part.module is None else part.module <= tier
    server = torch.zeros(model.n_parameters, dtype=torch.bool)
    for part in model.parts:
        server[part.place] = part.module is not None and part.module > tier
    for feature, label in zip(shards.features[rows], shards.labels[rows], strict=True):
        model.module.zero_grad(set_to_none=True)
        scores = split_scores(model, tier, feature[None])
        sum(model.loss(part, label[None]).sum() for part in scores).backward()
        gradient = torch.cat(
            [
                torch.zeros(p.numel()) if p.grad is None else p.grad.flatten()
                for p in model.module.parameters()
            ]
        )
        for part, share in ((client, beta), (server, 1 - beta)):
            norm = config.privacy.clipping_norm * share**0.5
            total += gradient * part * min(1.0, norm / float((gradient * part).norm()))
    return total


@pytest.mark.parametrize("tier", [1, 2, 3])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_step_is_the_two_losses_gradient_clipped_in_two_parts(tier, backend):
    """Against autograd through the whole, one record at a time; noise is taken out."""
    experiment = tiered(
        **{
            "training.batch_size": None,
            "training.rounds": 1,
            "training.local_steps": 1,
            "tiering.schedule": "static",
            "tiering.static_tier": tier,
            "tiering.tiers": 3,
            "privacy.client_share": 0.3,
            "privacy.clipping_norm": 0.4,
            "training.backend": backend,
        }
    )
    simulation = experiment.simulation()
    noise = simulation.mechanisms[0].noise
    silent = torch.zeros_like(experiment.model.initial_vector())
    process = experiment.process(simulation)
    object.__setattr__(noise, "steps", np.zeros_like(noise.steps))
    after = last_state(process, experiment.run_plan.rounds).weights
    moved = (experiment.model.initial_vector() - after) / experiment.config.training.learning_rate
    sizes = experiment.samples.sizes
    for device in range(6):
        silent += expected_step(experiment, device, tier) / (6 * sizes[device])
    torch.testing.assert_close(moved, silent, rtol=1e-3, atol=2e-6)
    assert float(silent.norm()) > 1e-3


# Of each world; a bound is wrong with probability 5 % at most, and the seed is fixed.
REPETITIONS = 1500
ALONE = {
    **SETTING,
    "topology.fanouts": [1, 2 * REPETITIONS],
    "topology.trust.ratios": [0.0],
    "tiering.offload_to": "anyone",
    "tiering.tiers": 3,
    "tiering.schedule": "static",
    "tiering.static_tier": 1,
    "training.rounds": 1,
    "training.local_steps": 1,
    "training.batch_size": None,
    "partition.samples_per_device": None,
    "privacy.adjacency": "zero_out",
    "privacy.delta": 0.1,
    "privacy.epsilon": 2.0,
    "privacy.clipping_norm": 0.7,
    "privacy.activation_share": 0.4,
}


def canary_model() -> SplitModel:
    """Without biases: a record of zeros has activations and gradients of zero, and any other's are
    far beyond what they are clipped to."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Flatten(), nn.Linear(64, 4, bias=False))
    second, head = (nn.Sequential(nn.Linear(4, 2, bias=False)) for _ in range(2))
    nn.init.constant_(first[1].weight, 3.0)
    nn.init.zeros_(head[0].weight)
    chain = SplitChain([first, second], {1: head})
    return SplitModel("canary", chain, cross_entropy, linear=False, shape=(1, 8, 8))


def heard(**keys) -> tuple[np.ndarray, np.ndarray, Experiment]:
    """What an untrusted server hears of devices with one record each, every other one's of zeros:
    activations and the client's gradient, along the record's own, in units of what they are
    clipped to; (n,) each."""
    dataset, manifest = records_of([1] * 2 * REPETITIONS)
    experiment = Experiment.from_config(
        load_config(ALONE, {"algorithm": "m2fdp_tiers"}, keys), dataset, manifest
    )
    sizes = experiment.samples.sizes
    features = torch.ones(len(sizes), 1, 8, 8)
    features[1::2] = 0.0
    labels = torch.zeros(len(sizes), dtype=torch.int64)
    shards = Shards(features, labels, sizes, np.ones(len(sizes)))
    simulation = experiment.simulation(
        model=canary_model(), shards=shards, randomness=seeded(0, b"canary")
    )
    process = experiment.process(simulation)
    activations, gradients = np.zeros((2, len(sizes)))
    # All activations are alike, and the head's gradient is their outer product with (-1/2, 1/2).
    along_z = torch.full((4,), 0.5)
    along_g = torch.cat(
        [torch.zeros(256), torch.outer(torch.tensor([-1.0, 1.0]), along_z).flatten()]
    )
    along_g /= along_g.norm()

    def host(device: int, sent: torch.Tensor, gradient: torch.Tensor) -> None:
        activations[device] = float(sent[0].flatten() @ along_z)
        gradients[device] = float(gradient @ along_g)

    process = replace(process, kind=overheard(process.kind, host))
    last_state(process, experiment.run_plan.rounds)
    privacy = experiment.config.privacy
    return activations / privacy.activation_clip, gradients / privacy.clipping_norm, experiment


def lower_bound(activations: np.ndarray, gradients: np.ndarray, experiment: Experiment) -> float:
    """Of epsilon, by the best test of both."""
    clients = experiment.calibrate().mechanism.noise.clients
    privacy = experiment.config.privacy
    of_z = clients.activations[0] / privacy.activation_clip
    of_g = clients.gradients[0] / privacy.clipping_norm
    scores = (activations - 0.5) / of_z**2 + (gradients - 0.5) / of_g**2
    return epsilon_shown(scores[1::2], scores[0::2], privacy.delta, 0.95)


@pytest.fixture(scope="module")
def honest():
    return heard()


def test_what_a_server_hears_of_a_record_is_what_the_ledger_says(honest):
    """Means and deviations to 5 sigma, and both releases are independent."""
    activations, gradients, experiment = honest
    clients = experiment.calibrate().mechanism.noise.clients
    privacy = experiment.config.privacy
    n = len(activations) // 2
    for values, deviation in (
        (activations, clients.activations[0] / privacy.activation_clip),
        (gradients, clients.gradients[0] / privacy.clipping_norm),
    ):
        for world, mean in ((values[0::2], 1.0), (values[1::2], 0.0)):
            assert abs(world.mean() - mean) < 5 * deviation / np.sqrt(n)
            assert abs(world.std() / deviation - 1) < 5 / np.sqrt(2 * n)
    assert abs(np.corrcoef(activations[0::2], gradients[0::2])[0, 1]) < 5 / np.sqrt(n)


def test_a_canary_stays_below_the_ledger_and_is_not_blind(honest):
    bound = lower_bound(*honest)
    assert 0.8 < bound < honest[2].calibrate().mechanism.epsilon(1) == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize(
    ("build", "copies"),
    [
        ("gradients un-noised", 150),
        pytest.param("noise counted once", 1500, marks=pytest.mark.full),
    ],
)
def test_a_canary_catches_a_broken_build(monkeypatch, build, copies):
    """The ledger says 2 of what is less noise than it takes into account."""
    right = splits.with_client_noise

    def broken(*arguments):
        noise = right(*arguments)
        if build == "gradients un-noised":
            clients = replace(noise.clients, gradients=noise.clients.gradients * 1e-3)
        else:  # each release as if it were the only one that tells of the record
            share = arguments[0].privacy.activation_share
            clients = replace(
                noise.clients,
                gradients=noise.clients.gradients * np.sqrt(1 - share),
                activations=noise.clients.activations * np.sqrt(share),
            )
        return replace(noise, clients=clients)

    monkeypatch.setattr(splits, "with_client_noise", broken)
    activations, gradients, experiment = heard()
    assert (
        lower_bound(activations[: 2 * copies], gradients[: 2 * copies], experiment)
        > 2.0
        == pytest.approx(experiment.calibrate().mechanism.epsilon(1), rel=1e-3)
    )


def test_nothing_depends_on_tiles_or_processes():
    keys = {"topology.trust.ratios": [0.5], "tiering.offload_to": "anyone"}
    keys |= {"privacy.adjacency": "zero_out", "training.local_steps": 3}
    experiment = tiered(**keys)
    assert torch.equal(weights_of(experiment), weights_of(experiment, chunk_size=1, workers=2))


def test_a_device_that_keeps_its_model_for_a_round_noises_all_of_it():
    """Below a server that nobody trusts, in the tier of the whole model; 5 sigma."""
    keys = {
        "topology.fanouts": [1, 1],
        "partition.scheme": "iid",
        "topology.trust.ratios": [0.0],
        "training.rounds": 1,
        "training.local_steps": 1,
        "tiering.offload_to": "anyone",
        "tiering.whole_model": True,
        "tiering.schedule": "static",
        "tiering.static_tier": 8,
        "privacy.adjacency": "zero_out",
    }
    experiment = tiered(**keys)
    assert (experiment.splits.tiers == 4).all()
    first, second = (
        last_state(
            experiment.process(experiment.simulation(randomness=seeded(0, key))),
            experiment.run_plan.rounds,
        ).weights.numpy()
        for key in (b"one", b"other")
    )
    sigma = experiment.calibrate().mechanism.noise.clients.gradients[0]
    expected = sigma * experiment.config.training.learning_rate * np.sqrt(2)
    difference = first - second
    assert abs(difference.std() / expected - 1) < 5 / np.sqrt(2 * len(difference))


def test_noise_of_clients_is_on_their_part_alone():
    """And the server's part follows from noised activations: without any records it stays."""
    keys = {"topology.trust.ratios": [0.0], "tiering.offload_to": "anyone"}
    keys |= {"privacy.adjacency": "zero_out", "training.batch_size": 1e-6, "privacy.delta": 1e-9}
    keys |= {"tiering.schedule": "static", "tiering.static_tier": 1, "tiering.tiers": 3}
    experiment = tiered(**keys)
    start, end = experiment.model.initial_vector(), weights_of(experiment)
    for part in experiment.model.parts:
        moved = float((start - end)[part.place].abs().max())
        if part.head == 1 or part.module == 1:
            assert moved > 1e-3
        else:  # the rounding of means of what is equal
            assert moved < 1e-6
