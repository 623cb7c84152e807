"""Runs with evaluations."""

import math
from dataclasses import replace
from math import log

import pytest
import torch
from tests.builders import process_of

from m2fdp.algorithms import ALGORITHMS, Given
from m2fdp.simulation.evaluation import evaluate
from m2fdp.simulation.process import State
from m2fdp.simulation.training import (
    DivergenceError,
    FixedRounds,
    Listener,
    Measures,
    Run,
    divergence,
    train,
)
from m2fdp.topology.builders import tree_from_fanouts
from m2fdp.topology.trust import all_untrusted


@pytest.fixture
def run_of(schedule, make_shards, softmax, mechanism_for):
    def make(name, learning_rate=0.5, every=2, trained=5):
        tree = tree_from_fanouts([2, 2])
        shards = make_shards([10] * 4)
        plan = ALGORITHMS[name].plan(
            Given(tree, all_untrusted(tree), schedule(5, 1, learning_rate=learning_rate))
        )
        dp = mechanism_for(plan, shards)
        measures = Measures(
            every,
            lambda weights: evaluate(softmax, weights, shards.features, shards.labels),
            lambda t: (2.0 * t, 3.0 * t),
            dp.epsilon if dp.private else lambda t: math.nan,
        )
        process = process_of(plan.network, dp, softmax, shards)
        return Run(process, FixedRounds(plan.schedule.round_plans()), trained, measures)

    return make


def train_listening(run):
    rounds = []
    listener = Listener(lambda t, logged, seconds: rounds.append(t), lambda record: None)
    state, metrics = train(run, listener)
    return state, metrics, rounds


def test_rows_are_the_evaluated_rounds_and_the_last(run_of):
    state, metrics, rounds = train_listening(run_of("hfl_dp"))
    assert state.round == 5
    assert metrics["round"].tolist() == [2, 4, 5]
    assert metrics["energy_j"].tolist() == [4.0, 8.0, 10.0]
    assert metrics["delay_s"].tolist() == [6.0, 12.0, 15.0]
    assert metrics["epsilon"].is_monotonic_increasing
    assert metrics["epsilon"].iloc[-1] <= 4
    assert rounds == [1, 2, 3, 4, 5]


def test_the_last_of_the_planned_rounds_ends_training(run_of):
    state, metrics, rounds = train_listening(run_of("hfl_dp", trained=3))
    shorter, *_ = train_listening(run_of("hfl_dp", every=1, trained=3))
    assert state.round == 3
    assert metrics["round"].tolist() == [2, 3]
    assert torch.equal(state.weights, shorter.weights)
    assert rounds == [1, 2, 3]


def test_no_epsilon_where_nothing_is_verified(run_of):
    _, metrics, _ = train_listening(run_of("hfl"))
    assert metrics["epsilon"].isna().all()
    assert metrics["loss"].is_monotonic_decreasing


def test_a_model_that_is_no_longer_made_of_numbers_ends_training(run_of):
    with pytest.raises(DivergenceError, match="diverged by round") as caught:
        train(run_of("hfl", learning_rate=1e38))
    assert caught.value.step_size == 1e38


def test_a_loss_far_beyond_that_of_equal_scores_is_reported(softmax):
    """Equal scores for 3 classes have the loss ln 3."""
    assert divergence(softmax, 9.9 * log(3), n_classes=3) is None
    line = divergence(softmax, 10.1 * log(3), n_classes=3)
    assert line.endswith("the last loss is 11.1, and equal scores for all classes have 1.1")


def test_what_a_server_rule_keeps_goes_from_round_to_round(run_of):
    """Server momentum (Hsu et al. 2019) by hand: w <- w + v, v <- v / 2 + (aggregate - w)."""

    class Momentum:
        def start(self, weights):
            return {"velocity": torch.zeros_like(weights)}

        def step(self, weights, aggregate, slots):
            velocity = slots["velocity"] / 2 + aggregate - weights
            return weights + velocity, {"velocity": velocity}

    run = run_of("hfl")
    plain = run.process
    process = replace(
        plain,
        simulation=replace(
            plain.simulation, rules=replace(plain.simulation.rules, server=Momentum())
        ),
    )
    state, _ = train(replace(run, process=process))
    weights, velocity = plain.start().weights, 0.0
    for t, planned in enumerate(run.policy.rounds):
        moved = plain.round(State(t, weights), planned).weights - weights
        velocity = velocity / 2 + moved
        weights = weights + velocity
    torch.testing.assert_close(state.weights, weights)
    torch.testing.assert_close(state.slots["velocity"], velocity)


def test_evaluation_by_hand(softmax):
    features = torch.zeros(4, 1, 8, 8)
    result = evaluate(softmax, softmax.initial_vector(), features, torch.tensor([0, 0, 1, 2]))
    assert result.accuracy == 0.5  # equal scores: the first class
    assert result.loss == pytest.approx(math.log(10))
