"""What the cloud makes of aggregates: steps by hand, and in runs of any algorithm."""

from __future__ import annotations

import math

import pytest
import torch
from tests.builders import experiment_of

from m2fdp.core.engine.process import State
from m2fdp.core.engine.server_rules import Momentum, Yogi


def test_two_steps_of_yogi_by_hand():
    rule = Yogi(learning_rate=0.1, beta_1=0.9, beta_2=0.99, tau=1e-3)
    w = torch.tensor([1.0], dtype=torch.float64)
    slots = rule.start(w)
    assert slots["m"].item() == 0 and slots["v"].item() == pytest.approx(1e-6)
    w, slots = rule.step(w, torch.tensor([1.5], dtype=torch.float64), slots)
    # D = 0.5: m = 0.05, v = 1e-6 + 0.01 * 0.25.
    m, v = 0.05, 1e-6 + 0.0025
    expected = 1 + 0.1 * m / (math.sqrt(v) + 1e-3)
    assert w.item() == pytest.approx(expected, rel=1e-12)
    # D = 0.01, whose square is below v: v falls by 0.01 * 1e-4.
    w2, slots = rule.step(w, w + 0.01, slots)
    m, v = 0.9 * m + 0.1 * 0.01, v - 0.01 * 1e-4
    assert slots["v"].item() == pytest.approx(v, rel=1e-9)
    expected += 0.1 * m / (math.sqrt(v) + 1e-3)
    assert w2.item() == pytest.approx(expected, rel=1e-9)


def test_three_steps_of_momentum_by_hand():
    rule, w = Momentum(0.5), torch.tensor([1.0, 2.0], dtype=torch.float64)
    slots, seen = rule.start(w), []
    for update in ([1.0, 0.0], [1.0, -2.0], [0.0, 0.0]):
        w, slots = rule.step(w, w + torch.tensor(update), slots)
        seen.append(w.tolist())
    assert seen == [[2.0, 2.0], [3.5, 0.0], [4.25, -1.0]]


@pytest.mark.parametrize("algorithm", ["hfl", "hfl_dp", "m2fdp", "pedpfl", "cdp"])
def test_a_run_steps_from_the_aggregates_that_it_has_without_a_rule(algorithm):
    """The same draws, from the same model: only what the cloud makes of the aggregate differs."""
    settings = {
        "algorithm": algorithm,
        "topology.fanouts": [3, 2],
        "training.rounds": 3,
        "training.local_aggregation": None,
    }
    plain = experiment_of(settings)
    stepped = experiment_of(settings, {"training.server": {"rule": "momentum", "momentum": 0.7}})
    simulation = plain.simulation(randomness=stepped.simulation().randomness)
    averaging, process = plain.process(simulation), stepped.process()
    state, velocity = process.start(), 0.0
    for plan in stepped.run_plan.rounds:
        aggregate = averaging.round(State(state.round, state.weights), plan).weights
        velocity = 0.7 * velocity + (aggregate - state.weights)
        following = process.round(state, plan)
        torch.testing.assert_close(following.weights, state.weights + velocity)
        state = following


def test_what_the_server_makes_of_it_costs_no_epsilon():
    plain = experiment_of({"training.rounds": 4})
    for rule in ("momentum", "yogi"):
        stepped = experiment_of({"training.rounds": 4, "training.server.rule": rule})
        assert stepped.ledger().equals(plain.ledger())
        assert stepped.summary()["guarantee"] == "verified"
