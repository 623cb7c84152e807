"""Noise in the global model: steps as short as it asks, against the engine's own where gradients
are zero; and of all ways to one epsilon."""

from math import inf, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import records_of

from m2fdp import Experiment, load_config
from m2fdp.convergence.descent import accumulated_noise, round_noise, shortened
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.engine.rules import Momentum, TakeAggregate
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.privacy.mechanisms import Clipping, Noise, Protection, step_alone
from m2fdp.core.schedule.rounds import RunPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, no_noise
from m2fdp.core.topology.trust import all_untrusted

SMALL = {
    "topology.fanouts": [3, 4],
    "partition.scheme": "iid",
    "training.rounds": 6,
    "training.learning_rate": 100.0,
    "training.accumulated_noise": 1.0,
}
UPLOAD = {"privacy.mechanism": "upload"}
SUMS = {"secure_aggregation.layers": [1], "secure_aggregation.noise": "shared"}
SETTINGS = {
    "m2fdp": {},
    "hfl_dp": {"algorithm": "hfl_dp"},
    "pedpfl": {"algorithm": "pedpfl"},
    "momentum": {"training.server.rule": "momentum"},
    "inverse_sqrt": {"training.step_size": "inverse_sqrt", "training.server.rule": "momentum"},
    "upload": {**UPLOAD, "training.local_steps": 3, "training.local_aggregation": {1: 1}},
    "participants": {"training.participants": 2},
    "participation": {
        **UPLOAD,
        "training.participation": 0.5,
        "privacy.unit": "device",
        "training.local_aggregation": None,
    },
    "sums": {**SUMS, "topology.trust.ratios": [1.0]},
    "device": {"privacy.unit": "device"},
    "proximal": {"training.proximal": 1e-4},
    "budget": {"privacy.budget": 3.0},
}


def nothing_to_learn():
    """Digits of which all pixels are zero: gradients are, too, and what moves is noise."""
    n = 480
    return Dataset("blank", np.zeros((n, 8, 8, 1), np.float32), np.arange(n) % 10, 360, 10)


def experiment(**changes):
    return Experiment.from_config(load_config({**SMALL, **changes}, seed=3), nothing_to_learn())


@pytest.mark.parametrize("setting", SETTINGS)
def test_noise_alone_makes_as_much_of_the_model_as_was_asked(setting):
    """Of M = 640 parameters and five seeds: the root of the mean square has a relative standard
    error of 1/sqrt(2 x 3200) = 1.25 %, and 5 of them are allowed: false alarm < 1e-5 over all
    settings. Who takes part by chance changes what arrives, by less than that again."""
    squares = []
    for seed in range(5):
        config = load_config({**SMALL, **SETTINGS[setting]}, seed=seed)
        run = Experiment.from_config(config, nothing_to_learn())
        trained = run.train()
        start = run.model.initial_vector()
        end = torch.cat([value.flatten() for value in trained.state_dict.values()])
        squares.append(float((end - start).pow(2).mean()))
        step = float(trained.metrics["eta"].iloc[0])
        assert step == run.run_plan.rounds[trained.metrics["round"].iloc[0] - 1].step_size < 100
    tolerance = 0.125 if "particip" in setting else 0.0625
    assert sqrt(np.mean(squares)) == pytest.approx(1.0, rel=tolerance)


def test_epsilon_is_that_of_the_steps_as_they_are():
    shorter, as_they_are = experiment(), experiment(**{"training.accumulated_noise": None})
    assert shorter.schedule.learning_rate < as_they_are.schedule.learning_rate == 100
    assert shorter.calibrate().mechanism.epsilon(6) == as_they_are.calibrate().mechanism.epsilon(6)


@pytest.mark.parametrize("changes", [{"training.accumulated_noise": 1e9}, {"algorithm": "hfl"}])
def test_steps_with_little_noise_are_as_they_are(changes):
    run = experiment(**changes)
    assert run.schedule is run.plan.schedule
    assert run.run_plan is run.scheduled


def test_a_bound_is_of_the_steps_that_are_trained():
    run = Experiment.from_config(load_config({**SMALL, "training.evaluate_every": 1}, seed=3))
    bounds = run.bound(run.measure())
    assert bounds.summary["step_size"]["gamma"] == run.schedule.learning_rate < 100


@pytest.mark.parametrize("bad", [0.0, -1.0, inf, "much"])
def test_what_is_no_deviation_is_refused(bad):
    with pytest.raises(InputError, match=r"training\.accumulated_noise"):
        load_config({"training.accumulated_noise": bad})


def test_who_is_not_private_may_share_the_key():
    check_config(load_config({"training.accumulated_noise": 1.0, "algorithm": "hfl"}))


def test_by_hand():
    """One device beside another below an untrusted cloud, deviations 2 and 4 over eta, so that a
    round brings (2^2 + 4^2) / 4 = 5 eta^2; three rounds with beta = 1/2 carry 7/4, 3/2 and 1 of
    it: (0.1)^2 x 5 x (49/16 + 9/4 + 1)."""
    tree = tree_from_fanouts([2])
    network = Network(tree, all_untrusted(tree), no_noise(tree))
    alone = step_alone(network)
    silent = np.zeros(1), np.zeros(2)
    noise = Noise(np.array([2.0, 4.0]), silent, silent, silent[:1])
    drawn = Protection(Clipping("drawn"), alone, noise, True)
    plan = RunPlan((network,), Schedule(3, 1, {}, 0.1, "constant").round_plans())
    carried = Momentum(0.5).carried(3)
    assert carried.tolist() == [1.75, 1.5, 1.0]
    expected = 0.1 * sqrt(5 * (49 / 16 + 9 / 4 + 1))
    assert accumulated_noise(plan, [drawn], carried) == pytest.approx(expected)
    once = accumulated_noise(plan, [drawn], TakeAggregate().carried(3))
    assert once == pytest.approx(0.1 * sqrt(15))


@given(rounds=st.integers(1, 12), momentum=st.floats(0, 0.95), came=st.integers(1, 12))
def test_what_momentum_carries_is_what_its_steps_make_of_one_aggregate(rounds, momentum, came):
    """An aggregate that moves by one in round `came`, and by nothing in all others."""
    if came > rounds:
        return
    rule, weights = Momentum(momentum), torch.zeros(1, dtype=torch.float64)
    slots = rule.start(weights)
    for round_ in range(1, rounds + 1):
        weights, slots = rule.step(weights, weights + (round_ == came), slots)
    assert rule.carried(rounds)[came - 1] == pytest.approx(float(weights))


@given(accumulated=st.floats(0, 100), most=st.floats(1e-3, 100))
def test_noise_is_in_proportion_to_steps(accumulated, most):
    schedule = Schedule(4, 1, {}, 0.5, "constant")
    shorter = shortened(schedule, accumulated, most)
    assert accumulated * shorter.learning_rate / 0.5 <= most * (1 + 1e-12)
    assert shorter == schedule or accumulated > most


SHARED = {"secure_aggregation.noise": "shared"}
TRUSTED = {"topology.trust.ratios": [1.0]}
# Ten servers of five devices each; what is left in the global model over central privacy's.
WAYS = {
    "cdp": ({"algorithm": "cdp"}, 1.0),
    "sums over all devices": (
        SHARED
        | {
            "algorithm": "hfl_dp",
            "secure_aggregation.layers": [2],
            "secure_aggregation.decode": "cloud",
        },
        1.0,
    ),
    "sums over servers": (
        SHARED | TRUSTED | {"algorithm": "m2fdp", "secure_aggregation.layers": [1]},
        1.0,
    ),
    "m2fdp": (TRUSTED | {"algorithm": "m2fdp"}, sqrt(10)),
    "hdp": ({"algorithm": "hdp"}, sqrt(10)),
    "hfl_dp": ({"algorithm": "hfl_dp"}, sqrt(50)),
    "ldp": ({"algorithm": "ldp"}, sqrt(50)),
}


def noise_of(changes, **more):
    base = {
        "topology.fanouts": [10, 5],
        "training.rounds": 5,
        "training.local_steps": 1,
        "training.local_aggregation": None,
        "training.batch_size": None,
        "privacy.epsilon": 1.0,
    }
    config = load_config(base | changes | more)
    experiment = Experiment.from_config(config, *records_of([20] * 50))
    mechanism = experiment.calibrate().mechanism
    schedule = experiment.plan.schedule
    drawn = round_noise(experiment.network, mechanism.lock_step, mechanism.noise, schedule, 1)
    return sqrt(drawn.arriving)


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_noise_in_the_global_model_at_one_epsilon(mechanism):
    found = {
        way: noise_of(changes, **{"privacy.mechanism": mechanism})
        for way, (changes, _) in WAYS.items()
    }
    for way, (_, times) in WAYS.items():
        assert found[way] / found["cdp"] == pytest.approx(times, rel=1e-3), way
