"""Small simulations that tests put together from parts."""

from dataclasses import replace

import numpy as np
import torch
from tests.builders import last_state, one_record_each, process_of

from m2fdp import Experiment
from m2fdp.core.algorithms import ALGORITHMS, Given
from m2fdp.core.config import Config, ModelConfig, PrivacyConfig
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.models.registry import build_model
from m2fdp.core.privacy.calibration import CalibratedMechanism
from m2fdp.core.privacy.mechanisms import Clipping, Noise
from m2fdp.core.schedule.rounds import RunPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.streams import seeded
from m2fdp.core.topology.trust import all_untrusted

RAGGED = [
    ("cloud", "A"), ("cloud", "B"), ("A", "a1"), ("A", "a2"), ("B", "b1"),
    ("a1", "0"), ("a1", "1"), ("a2", "2"), ("b1", "3"), ("b1", "4"),
]  # fmt: skip
PRIVACY = {
    "gradient": PrivacyConfig(epsilon=4, delta=1e-5, clipping_norm=0.5),
    "upload": PrivacyConfig(
        mechanism="upload", calibration="paper", epsilon=4, delta=1e-5, clipping_norm=0.5
    ),
}


def make_shards(sizes, rate=1.0, shape=(1, 8, 8), n_classes=10, dtype=torch.float32):
    """Random records: sizes D_j, q_j, image shape, dtype -> Shards."""
    sizes, generator = np.asarray(sizes), torch.Generator().manual_seed(0)
    total = int(sizes.sum())
    features = torch.rand(total, *shape, generator=generator).to(dtype)
    labels = torch.randint(n_classes, (total,), generator=generator)
    return Shards(features, labels, sizes, np.full(len(sizes), float(rate)))


def run(network, mechanism, schedule, model, shards, tap=None, **options):
    """Train a network, heard by a tap or not, and give the final global model."""
    process = process_of(network, mechanism, model, shards, seeded(0, b"test"), **options)
    return last_state(process, schedule.round_plans(), tap).weights


def schedule(rounds=2, local_steps=3, local_aggregation=None, learning_rate=0.5):
    """A schedule with a few defaults."""
    return Schedule(rounds, local_steps, local_aggregation or {}, learning_rate, "constant")


def silent(mechanism: CalibratedMechanism) -> CalibratedMechanism:
    """The mechanism without its noise and its clipping; the rest stays."""
    own = mechanism.noise
    layers = (own.heads, own.messages, own.broadcasts)
    zeros = (tuple(np.zeros_like(scale) for scale in of_kind) for of_kind in layers)
    noise = Noise(np.zeros_like(own.steps), *zeros)
    return replace(mechanism, noise=noise, clipping=Clipping(mechanism.clipping.divide_by))


def mechanism_for(plan, shards, name="gradient"):
    """The mechanism of a plan, as an experiment has it."""
    run_plan = RunPlan((plan.network,), plan.schedule.round_plans())
    experiment = Experiment(Config(privacy=PRIVACY[name]), given_plan=plan)
    vars(experiment).update(samples=shards, sampling_rates=shards.rates, scheduled=run_plan)
    return experiment.calibration.mechanism


def plan_of(name, tree, trust, schedule, **changes):
    """What an algorithm plans, its network changed; None trusts nobody."""
    plan = ALGORITHMS[name].plan(Given(tree, trust or all_untrusted(tree), schedule))
    return replace(plan, network=replace(plan.network, **changes))


def run_plan(plan, mechanism, model, shards, **options):
    return run(plan.network, mechanism, plan.schedule, model, shards, **options)


def noise_alone(n):
    """A model of 20,000 parameters, and n records at which all its gradients are zero."""
    model = build_model(ModelConfig(name="svm"), (1, 100, 100), 2, seed=0)
    return model, one_record_each(torch.zeros(n, 1, 100, 100))
