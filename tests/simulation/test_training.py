"""Runs with evaluations."""

import math

import pytest
import torch

from m2fdp.algorithms import ALGORITHMS
from m2fdp.errors import InputError
from m2fdp.simulation.evaluation import evaluate
from m2fdp.simulation.simulation import build_simulation
from m2fdp.simulation.training import Observer, equal_rounds, train
from m2fdp.streams import seeded
from m2fdp.topology.builders import tree_from_fanouts
from m2fdp.topology.trust import all_untrusted


@pytest.fixture
def simulate(schedule, make_shards, softmax, mechanism_for):
    def make(name, learning_rate=0.5, rounds=5):
        tree = tree_from_fanouts([2, 2])
        shards = make_shards([10] * 4)
        plan = ALGORITHMS[name].plan(
            tree, all_untrusted(tree), schedule(rounds, 1, learning_rate=learning_rate)
        )
        dp = mechanism_for(plan, shards)
        return build_simulation(
            plan.network, dp, plan.schedule, softmax, shards, seeded(0, b"test")
        )

    return make


def train_quietly(simulation, evaluate_every=2, planned_rounds=5):
    heard = []
    observer = Observer(lambda round_, seconds: heard.append(round_.state.round), heard.append)
    shards = simulation.shards
    state, metrics = train(
        simulation,
        equal_rounds(simulation, 2.0, 3.0),
        shards.features,
        shards.labels,
        evaluate_every,
        planned_rounds,
        observer,
    )
    return state, metrics, heard


def test_rows_are_the_evaluated_rounds_and_the_last(simulate):
    state, metrics, heard = train_quietly(simulate("hfl_dp"))
    assert state.round == 5
    assert metrics["round"].tolist() == [2, 4, 5]
    assert metrics["energy_j"].tolist() == [4.0, 8.0, 10.0]
    assert metrics["delay_s"].tolist() == [6.0, 12.0, 15.0]
    assert metrics["epsilon"].is_monotonic_increasing
    assert metrics["epsilon"].iloc[-1] <= 4
    assert [item for item in heard if isinstance(item, int)] == [1, 2, 3, 4, 5]


def test_the_last_of_the_planned_rounds_ends_training(simulate):
    state, metrics, heard = train_quietly(simulate("hfl_dp"), planned_rounds=3)
    shorter, *_ = train_quietly(simulate("hfl_dp", rounds=5), evaluate_every=1, planned_rounds=3)
    assert state.round == 3
    assert metrics["round"].tolist() == [2, 3]
    assert torch.equal(state.weights, shorter.weights)
    assert [item for item in heard if isinstance(item, int)] == [1, 2, 3]


def test_no_epsilon_where_nothing_is_verified(simulate):
    _, metrics, _ = train_quietly(simulate("hfl"))
    assert metrics["epsilon"].isna().all()
    assert metrics["loss"].is_monotonic_decreasing


def test_divergence_is_told_in_one_line(simulate):
    with pytest.raises(InputError, match="training.learning_rate.*diverged by round"):
        train_quietly(simulate("hfl", learning_rate=1e38))


def test_evaluation_by_hand(softmax):
    features = torch.zeros(4, 1, 8, 8)
    result = evaluate(softmax, softmax.initial_vector(), features, torch.tensor([0, 0, 1, 2]))
    assert result.accuracy == 0.5  # equal scores: the first class
    assert result.loss == pytest.approx(math.log(10))
