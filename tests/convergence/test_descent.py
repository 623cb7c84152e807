"""The noise of a round against the engine's own, and the bound against runs without noise."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from tests.builders import one_record_each, process_of, quadratic, without_noise
from tests.convergence.settings import mechanism_of, network_on

from m2fdp.adversaries.heard import heard_by
from m2fdp.convergence.bound import Constants
from m2fdp.convergence.descent import RoundNoise, descent_bound, round_noise
from m2fdp.convergence.measurement import run_rounds
from m2fdp.core.config import ModelConfig, PrivacyConfig
from m2fdp.core.engine.process import State
from m2fdp.core.models.registry import build_model
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.trust import explicit_trust
from m2fdp.given.edges import tree_from_edges

DEEP = [
    ("cloud", "A"), ("cloud", "B"), ("A", "a"), ("B", "b"), ("B", "c"),
    ("a", "0"), ("a", "1"), ("a", "2"), ("b", "3"), ("b", "4"), ("c", "5"), ("c", "6"),
]  # fmt: skip
GRADIENT = PrivacyConfig(epsilon=4, delta=1e-5, clipping_norm=1)
UPLOAD = PrivacyConfig(
    mechanism="upload", calibration="paper", epsilon=4, delta=1e-5, clipping_norm=1
)


def silent_data(network, privacy, schedule, down=None):
    """A run whose gradients are all zero, as all features are: what moves is noise.

    Args:
        down: what each server adds to its broadcasts, by layer, if any does.
    """
    shards = one_record_each(torch.zeros(network.tree.n_devices, 1, 8, 8))
    mechanism = mechanism_of(network, schedule, privacy, rates=0.5)
    if down is not None:
        mechanism = replace(mechanism, noise=replace(mechanism.noise, broadcasts=down))
    model = build_model(ModelConfig(name="softmax"), (1, 8, 8), 10, seed=0)
    return process_of(network, mechanism, model, shards)


@pytest.mark.parametrize("participants", [None, 1])
@pytest.mark.parametrize(
    ("privacy", "down"),
    [(GRADIENT, None), (UPLOAD, None), (UPLOAD, ([0], [0.5, 0.0], [0.7, 0.0, 0.0]))],
    ids=["gradient", "up", "down"],
)
def test_arriving_noise_is_the_engines(privacy, down, participants):
    """Mean over 40 rounds and M = 640 parameters, within 5 standard errors: false alarm < 1e-6.

    The squares' mean has a relative standard error of sqrt(2/25600) = 0.9 %, and a little more
    where those who take part change.
    """
    tree = tree_from_edges(DEEP)
    network = network_on(tree, explicit_trust(tree, ["B", "b"]), participants)
    schedule = Schedule(40, 4, {2: 1, 1: 2}, 0.5, "constant")
    process = silent_data(network, privacy, schedule, down and tuple(map(np.array, down)))
    (mechanism,) = process.simulation.mechanisms
    expected = round_noise(network, mechanism.lock_step, mechanism.noise, schedule, 640)
    start = torch.zeros(640)
    plans = schedule.round_plans()
    moved = [process.round(State(t, start), plans[t]).weights for t in range(40)]
    measured = torch.stack(moved).double().square().sum(dim=1).mean() / 0.5**2
    assert measured == pytest.approx(expected.arriving, rel=5 * sqrt(2 / 25600))


def test_gathered_noise_is_that_of_the_models_that_devices_take_over():
    """One local aggregation at layer 1 before the end; same test and false-alarm rate."""
    tree = tree_from_edges(DEEP)
    network = network_on(tree, explicit_trust(tree, ["B", "b"]))
    schedule = Schedule(40, 2, {1: 1}, 0.5, "constant")
    process = silent_data(network, UPLOAD, schedule)
    (mechanism,) = process.simulation.mechanisms
    expected = round_noise(network, mechanism.lock_step, mechanism.noise, schedule, 640)
    taken = []

    def tap(direction, layer, models):
        if direction == "down":
            taken.append(models.double().square().sum(dim=1).mean())

    for t, plan in enumerate(schedule.round_plans()):
        heard_by(process, tap).round(State(t, torch.zeros(640)), plan)
    assert len(taken) == 40
    # Only B is untrusted: its model carries noise, A's none.
    assert torch.stack(taken).mean() / 0.5**2 == pytest.approx(
        expected.gathered, rel=5 * sqrt(2 / 25600)
    )


def test_noise_of_a_two_tier_round_by_hand():
    """Two untrusted servers of three devices, scale 2, one local aggregation, M = 10.

    Arriving: 2 aggregations · 6 devices · (1/6)² · 4 · 10 = 80/6. Gathered: at each server
    3 · (1/3)² · 4 · 10 = 40/3.
    """
    network = network_on(tree_from_fanouts([2, 3]))
    schedule = Schedule(1, 2, {1: 1}, 1.0, "constant")
    mechanism = mechanism_of(network, schedule, UPLOAD)
    mechanism.noise.messages[2][:] = 2.0
    noise = round_noise(network, mechanism.lock_step, mechanism.noise, schedule, 10)
    assert noise.arriving == pytest.approx(80 / 6)
    assert noise.gathered == pytest.approx(40 / 3)


def test_bound_by_hand():
    """beta = 2, H = 3, K = 2, N = 5, V = 7, eta = 1/2 and 1/4, drops 0.6 and 0.9.

    Sums of eta: 0.5, 0.75; of eta²: 0.25, 0.3125; of eta³: 0.125, 0.140625.
    a1 = 0.6/0.5, 0.9/0.75. a2 = 3 (8 · 0.25 + 4 · 0.125)/0.5 = 15, 3 (2.5 + 0.5625)/0.75 = 12.25.
    b = (56 · 0.125 + 10 · 0.25)/0.5 = 19, (7.875 + 3.125)/0.75 = 44/3.
    """
    constants = Constants(2.0, sqrt(2), 1.0, 1, 2, 1.0, 1.0, 1e-5)
    bound = descent_bound(
        constants, RoundNoise(5.0, 7.0), np.array([0.5, 0.25]), np.array([0.6, 0.9])
    )
    np.testing.assert_allclose(bound.a1, [1.2, 1.2])
    np.testing.assert_allclose(bound.a2, [15, 12.25])
    np.testing.assert_allclose(bound.b, [19, 44 / 3])


def quadratic_run(mechanism, network, schedule, centres):
    """The global models w^(1)…w^(T+1) of devices with F_j = (w - c_j)²/2: float64 (T+1,)."""
    shards = one_record_each(torch.tensor(centres).view(-1, 1, 1, 1))
    process = process_of(network, mechanism, quadratic(), shards)
    states = [process.start(), *run_rounds(process, schedule.round_plans())]
    return np.array([state.weights.item() for state in states])


@pytest.mark.parametrize("learning_rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("every", [{}, {1: 1}])
def test_bound_holds_for_every_prefix_of_runs_without_noise(learning_rate, every):
    network, mechanism = without_noise(tree_from_fanouts([2, 2]))
    schedule = Schedule(30, 3, every, learning_rate, "inverse_sqrt")
    centres = np.array([1.0, 3.0, 5.0, 9.0], dtype=np.float32)
    w = quadratic_run(mechanism, network, schedule, centres)
    losses = ((w[:, None] - centres) ** 2).mean(axis=1) / 2
    steps = np.array([schedule.step_size(t) for t in range(1, 31)])
    # All models stay between 0 and 9, so no gradient is longer than 9.
    constants = Constants(1.0, 9.0, 0.0, 1, 3, 1.0, 1.0, 1e-5)
    bound = descent_bound(constants, RoundNoise(0, 0), steps, losses[0] - losses[1:])
    norms = (w[:-1] - 4.5) ** 2
    assert (np.cumsum(steps * norms) / np.cumsum(steps) <= bound.total).all()


def test_noise_term_is_a_small_factor_above_what_noise_does():
    """At the minimum, K = 1: w is a first-order process of variance eta² N / (1 - (1 - eta)²),
    0.67 eta N at eta = 1/2, and (b) is 2 eta N. Over 1000 rounds the mean square has a standard
    error of 6 % or so; it must lie within 30 % of 0.67 eta N: false alarm < 1e-6.
    """
    network = network_on(tree_from_fanouts([2, 2]))
    schedule = Schedule(1000, 1, {}, 0.5, "constant")
    mechanism = mechanism_of(network, schedule, UPLOAD)
    mechanism.noise.messages[2][:] = 0.05  # far from the clipping norm of 1
    w = quadratic_run(mechanism, network, schedule, np.zeros(4, dtype=np.float32))
    noise = round_noise(network, mechanism.lock_step, mechanism.noise, schedule, 1)
    constants = Constants(1.0, 0.0, 0.0, 1, 1, 1.0, 1.0, 1e-5)
    bound = descent_bound(constants, noise, np.full(1000, 0.5), np.zeros(1000))
    assert bound.total[-1] == pytest.approx(2 * 0.5 * noise.arriving)
    assert np.mean(w**2) == pytest.approx(noise.arriving / 3, rel=0.3)
    assert np.mean(w**2) < bound.total[-1]
