"""How far one record moves what a device sends, by the engine's own float32, where the model is as
long as a run lets it become, and where it is longer."""

from dataclasses import replace

import torch
from tests.builders import experiment_of

from m2fdp.adversaries.heard import heard_by
from m2fdp.core.engine.process import State
from m2fdp.core.engine.rules import any_length
from m2fdp.core.privacy.mechanisms import silence

EXPERIMENT = experiment_of(
    {
        "topology.fanouts": [2, 3],
        "topology.trust.ratios": [0.0],
        "training.rounds": 1,
        "training.local_steps": 1,
        "training.local_aggregation": None,
        "training.batch_size": None,
    }
)
RECORDS = 10


def largest_excess(longer: float) -> float:
    """The most that one of device 0's records moves the device's message by, over what the ledger
    credits it with.

    Args:
        longer: how many times as long as a run lets it become the model is.
    """
    (plan,), mechanism = EXPERIMENT.run_plan.rounds, EXPERIMENT.calibration.mechanism
    noise = silence(EXPERIMENT.run_plan.networks[0], mechanism.lock_step)
    weights = torch.randn(EXPERIMENT.model.n_parameters, generator=torch.Generator().manual_seed(0))
    unlimited = replace(EXPERIMENT.rules, longest=any_length)
    weights *= longer * EXPERIMENT.rounding.longest(plan.step_size) / weights.norm()

    def message(shards):
        simulation = EXPERIMENT.simulation(
            mechanisms=(replace(mechanism, noise=noise),), shards=shards
        )
        if longer > 1:
            simulation = replace(simulation, rules=unlimited)
        heard = {}

        def tap(way, layer, sent):
            heard[way, layer] = sent.clone()

        heard_by(EXPERIMENT.process(simulation), tap).round(State(0, weights), plan)
        return heard["up", 2][0].double()

    shards = EXPERIMENT.shards()
    sent, moved = message(shards), []
    for record in range(RECORDS):
        features = shards.features.clone()
        features[record] = 0.0  # the softmax has no bias: no gradient
        moved.append(float((message(replace(shards, features=features)) - sent).norm()))
    clipping_norm = EXPERIMENT.config.privacy.clipping_norm
    return max(moved) * shards.sizes[0] / (plan.step_size * clipping_norm)


def test_rounding_adds_next_to_nothing_while_a_run_may_go_on():
    """0.2 % where rounding may move the model by an eighth of what one record does."""
    assert largest_excess(0.01) <= 1.001
    assert largest_excess(1.0) <= 1.01


def test_a_build_that_lets_models_grow_is_caught():
    assert largest_excess(100.0) > 2.0
