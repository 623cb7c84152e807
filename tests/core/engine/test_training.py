"""Runs with evaluations, and what the cloud makes of aggregates."""

import math
from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from tests.builders import experiment_of, records_of

from m2fdp import Experiment, load_config
from m2fdp.core.engine.process import State
from m2fdp.core.engine.rules import Momentum, Yogi
from m2fdp.core.engine.training import (
    DivergenceError,
    FixedRounds,
    Listener,
    divergence,
    evaluate,
    train,
)

SMALL = {
    "topology.fanouts": [2, 2],
    "training.rounds": 5,
    "training.local_steps": 1,
    "training.local_aggregation": None,
    "training.evaluate_every": 2,
    "privacy.clipping_norm": 0.5,
    "threads": 1,
}


def run_of(name, trained=5, **training):
    """A run of five rounds that is evaluated on its own training records."""
    config = load_config(SMALL, {"training": training}, algorithm=name)
    experiment = Experiment.from_config(config, *records_of([10] * 4))
    run = experiment.run()
    shards, model = experiment.shards(), experiment.model
    measures = replace(
        run.measures,
        evaluate=lambda weights: evaluate(model, weights, shards.features, shards.labels),
        spent=lambda t: (2.0 * t, 3.0 * t),
    )
    return replace(run, rounds=trained, measures=measures)


def train_listening(run):
    rounds = []
    listener = Listener(lambda t, logged, seconds: rounds.append(t), lambda record: None)
    state, metrics = train(run, listener)
    return state, metrics, rounds


def test_rows_are_the_evaluated_rounds_and_the_last():
    state, metrics, rounds = train_listening(run_of("hfl_dp"))
    assert state.round == 5
    assert metrics["round"].tolist() == [2, 4, 5]
    assert metrics["energy_j"].tolist() == [4.0, 8.0, 10.0]
    assert metrics["delay_s"].tolist() == [6.0, 12.0, 15.0]
    assert metrics["epsilon"].is_monotonic_increasing
    assert metrics["epsilon"].iloc[-1] <= 4
    assert rounds == [1, 2, 3, 4, 5]


def test_the_last_of_the_planned_rounds_ends_training():
    state, metrics, rounds = train_listening(run_of("hfl_dp", trained=3))
    shorter, *_ = train_listening(run_of("hfl_dp", trained=3, evaluate_every=1))
    assert state.round == 3
    assert metrics["round"].tolist() == [2, 3]
    assert torch.equal(state.weights, shorter.weights)
    assert rounds == [1, 2, 3]


def test_no_epsilon_where_nothing_is_verified():
    _, metrics, _ = train_listening(run_of("hfl"))
    assert metrics["epsilon"].isna().all()
    assert metrics["loss"].is_monotonic_decreasing


def test_a_model_that_is_no_longer_made_of_numbers_ends_training():
    run = run_of("hfl")
    steep = tuple(replace(plan, step_size=1e38) for plan in run.policy.rounds)
    with pytest.raises(DivergenceError, match="diverged by round") as caught:
        train(replace(run, policy=FixedRounds(steep)))
    assert caught.value.step_size == 1e38


@pytest.mark.parametrize(
    ("shares", "alone"),
    [
        ([1 / 3, 1 / 3, 1 / 3], log(3)),
        ([0.9, 0.1, 0.0], -0.9 * log(0.9) - 0.1 * log(0.1)),
        ([0.99, 0.01, 0.0], None),  # beyond ten times 0.056, and yet no worse than equal scores
        ([1.0, 0.0, 0.0], None),
    ],
)
def test_a_loss_far_beyond_that_of_the_shares_is_reported(softmax, shares, alone):
    """Cross-entropy of shares is their entropy; equal scores for 3 classes have the loss ln 3."""
    most = log(3) if alone is None else 10 * alone
    assert divergence(softmax, 0.99 * most, np.array(shares)) is None
    line = divergence(softmax, 1.01 * most, np.array(shares))
    assert line.startswith("training diverged or drowned in noise: the last loss is ")
    if alone is not None:
        assert line.endswith(f", and scores that look at no record have {alone:.3g}")


def test_evaluation_by_hand(softmax):
    features = torch.zeros(4, 1, 8, 8)
    result = evaluate(softmax, softmax.initial_vector(), features, torch.tensor([0, 0, 1, 2]))
    assert result.accuracy == 0.5  # equal scores: the first class
    assert result.loss == pytest.approx(log(10))


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
