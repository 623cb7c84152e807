"""Steps of devices that split their model, in the engine's own rounds."""

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from m2fdp.config import load_config
from m2fdp.data.dataset import Dataset
from m2fdp.experiments import Experiment
from m2fdp.models.split import build_split_model
from m2fdp.simulation.minibatches import Minibatches
from m2fdp.simulation.splits import only
from m2fdp.streams import seeded
from tests.builders import experiment_of, last_state

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
    return last_state(experiment.process(simulation), experiment.run_plan.rounds).weights


def test_without_trusted_servers_weights_are_those_of_m2fdp_to_the_byte():
    """Bar 15, p1 = 0. Noise is keyed by the configuration, so both are given the same."""
    nobody = {"topology.trust.ratios": [0.0]}
    own, split = experiment_of(SETTING, nobody), tiered(**nobody)
    assert (split.splits.tiers == 4).all()
    assert split.model.n_parameters == own.model.n_parameters
    assert torch.equal(weights_of(own), weights_of(split))
    assert own.calibrate().mechanism.epsilon(2) == split.calibrate().mechanism.epsilon(2)


def test_with_trusted_servers_epsilon_is_that_of_m2fdp_and_rounds_take_less_time():
    """Bar 15, p1 = 1, at D's rates and profiles."""
    own = experiment_of(SETTING)
    seconds = {}
    for ratio in (0.0, 0.5, 1.0):
        experiment = tiered(**{"topology.trust.ratios": [ratio], "topology.fanouts": [10, 5]})
        tiers = experiment.splits.tiers
        below_trusted = experiment.network.trust[1][experiment.network.tree.parents[1]]
        assert ((tiers <= 3) == below_trusted).all()
        seconds[ratio] = experiment.splits.seconds.mean()
    assert seconds[1.0] < 0.4 * seconds[0.0]
    assert seconds[0.5] < 1.05 * seconds[0.0]
    split = tiered()
    verified = split.calibrate().mechanism.epsilon(2)
    assert verified == own.calibrate().mechanism.epsilon(2)
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
        scores = model.scores_at(tier, feature[None])
        model.tier_loss(scores, label[None]).sum().backward()
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
