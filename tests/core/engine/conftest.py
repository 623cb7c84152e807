"""Small simulations that tests put together from parts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.builders import last_state, process_of

from m2fdp import Experiment
from m2fdp.core.config import Config, ModelConfig, PrivacyConfig
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.models.registry import build_model
from m2fdp.core.privacy.calibrated import CalibratedMechanism
from m2fdp.core.privacy.mechanisms import Clipping, Noise
from m2fdp.core.schedule.rounds import RunPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.streams import seeded

PRIVACY = {
    "gradient": PrivacyConfig(epsilon=4, delta=1e-5, clipping_norm=0.5),
    "upload": PrivacyConfig(
        mechanism="upload", calibration="paper", epsilon=4, delta=1e-5, clipping_norm=0.5
    ),
}


@pytest.fixture
def privacy():
    return dict(PRIVACY)


@pytest.fixture
def make_shards():
    """Random records: sizes D_j, q_j, image shape, dtype -> Shards."""

    def make(sizes, rate=1.0, shape=(1, 8, 8), n_classes=10, dtype=torch.float32, seed=0):
        sizes = np.asarray(sizes)
        generator = torch.Generator().manual_seed(seed)
        total = int(sizes.sum())
        return Shards(
            torch.rand(total, *shape, generator=generator).to(dtype),
            torch.randint(n_classes, (total,), generator=generator),
            sizes,
            np.full(len(sizes), float(rate)),
        )

    return make


@pytest.fixture
def softmax():
    return build_model(ModelConfig(name="softmax"), (1, 8, 8), 10, seed=0)


@pytest.fixture
def run():
    """Train a network and give the final global model."""

    def run(network, mechanism, schedule, model, shards, seed=0, **options):
        process = process_of(network, mechanism, model, shards, seeded(seed, b"test"), **options)
        return last_state(process, schedule.round_plans()).weights

    return run


@pytest.fixture
def schedule():
    """A schedule with a few defaults."""

    def make(rounds=2, local_steps=3, local_aggregation=None, learning_rate=0.5):
        return Schedule(rounds, local_steps, local_aggregation or {}, learning_rate, "constant")

    return make


@pytest.fixture
def silent():
    """A mechanism with its noise and its clipping taken away; the rest stays."""

    def silence(mechanism: CalibratedMechanism) -> CalibratedMechanism:
        noise = Noise(
            np.zeros_like(mechanism.noise.steps),
            tuple(np.zeros_like(scale) for scale in mechanism.noise.heads),
            tuple(np.zeros_like(scale) for scale in mechanism.noise.messages),
            tuple(np.zeros_like(scale) for scale in mechanism.noise.broadcasts),
        )
        clipping = Clipping(mechanism.clipping.divide_by)
        return replace(mechanism, noise=noise, clipping=clipping)

    return silence


@pytest.fixture
def mechanism_for(privacy):
    """The mechanism of a plan, as an experiment has it."""

    def make(plan, shards, name="gradient"):
        config = Config(privacy=privacy[name])
        run_plan = RunPlan((plan.network,), plan.schedule.round_plans())
        experiment = Experiment(config, given_plan=plan)
        vars(experiment).update(samples=shards, sampling_rates=shards.rates, scheduled=run_plan)
        return experiment.calibration.mechanism

    return make
