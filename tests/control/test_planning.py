"""(P) with the mechanism's noise: brute force, its trade-offs, and the noise that it prices."""

from dataclasses import replace
from itertools import product
from math import sqrt
from time import perf_counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import digits, records_of

from m2fdp import load_config
from m2fdp.control.config import ControlConfig
from m2fdp.control.gaps import NOTHING, MechanismGap
from m2fdp.control.problem import Choice, ChoiceGrid, plan_problem, solve, terms_at
from m2fdp.control.run import ControllerState, plan_round, prices_of
from m2fdp.convergence.descent import round_noise
from m2fdp.convergence.mean_descent import Landscape, RoundSpread, StepSums, raised, smoothness_of
from m2fdp.core.errors import InputError
from m2fdp.core.models.registry import build_model
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.experiment import Experiment

ROUNDS = 12


def made_up(seed=0, shape=(4, 2, 3)):
    """Choices with costs and spreads of no network; noise grows with tau."""
    rng = np.random.default_rng(seed)
    k, a, b = shape
    steps = np.arange(1, k + 1)
    energy, delay = rng.uniform(0.5, 2, size=(2, *shape)) * (1 + steps[:, None, None])
    sizes = np.arange(1, a + 1), np.arange(1, b + 1)
    grid = ChoiceGrid(steps, sizes, energy, delay, Choice(2, a, b))
    parts = rng.uniform(0, 1, size=(4, *shape)) * steps[:, None, None]

    def spread(total):
        return RoundSpread(parts[0], total * parts[1] / 50, parts[2], total * parts[3] / 50)

    return grid, Landscape(0.5, 1.0, 3.0, 0.2), spread


def planned(seed=0, tau=None, **alphas):
    grid, landscape, spread = made_up(seed)
    schedule = Schedule(ROUNDS, 3, {}, 1.0, "constant")
    config = ControlConfig(max_local_steps=4, initial_local_steps=2, tau=tau, **alphas)
    return grid, landscape, spread, *plan_problem(grid, landscape, spread, schedule, config)


def gap_by_hand(landscape, spread, steps, rounds, last, gamma, at):
    """Round by round."""
    lost, weight = landscape.loss_drop, 0.0
    for t in range(1, rounds + 1):
        eta, share = gamma / sqrt(t + 1), last
        beta, kappa = landscape.smoothness, landscape.mean_curvature
        carried = min(beta**2, 2 * beta * kappa) * spread.carried[at]
        drift = beta**2 * spread.parted[at] + carried
        bursts = beta * spread.scattered[at] + kappa * spread.noise[at]
        lost += share * (eta**3 * drift + eta**2 / 2 * bursts)
        weight += share * eta * steps
    return 2 * lost / weight


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 50), st.tuples(*[st.floats(0.01, 30)] * 3))
def test_planning_is_brute_force_over_tau_the_step_size_and_every_choice(seed, alphas):
    named = dict(zip(("alpha_1", "alpha_2", "alpha_3"), alphas, strict=True))
    grid, landscape, spread, problem, gamma = planned(seed, **named)
    assert problem.total_steps <= ROUNDS * 3
    first = solve(problem, problem.total_steps)
    found = terms_at(problem, first, problem.total_steps).objective
    tried = sqrt(2) / landscape.smoothness * np.geomspace(1e-3, 1, 48)
    assert gamma in tried
    # Every choice at some tau, and every step size.
    for total in (1, 5, problem.total_steps, 36):
        spread_at = spread(total)
        for (k, steps), a, b in product(enumerate(grid.local_steps), range(2), range(3)):
            rounds = -(-total // steps)
            if steps > total or rounds > ROUNDS:
                continue
            at = (k, a, b)
            for value in tried[::5]:
                gap = gap_by_hand(
                    landscape, spread_at, steps, rounds, total / (rounds * steps), value, at
                )
                shares = (
                    total / steps * grid.energy_j[at] / problem.units[0],
                    total / steps * grid.delay_s[at] / problem.units[1],
                    gap / problem.units[2],
                )
                objective = sum(x * share for x, share in zip(alphas, shares, strict=True))
                if total in np.geomspace(1, 36, 48).round():
                    assert found <= objective * (1 + 1e-9)
    total, steps = problem.total_steps, first.local_steps
    rounds = -(-total // steps)
    share, at = total / (rounds * steps), grid.place(first)
    own = gap_by_hand(landscape, spread(total), steps, rounds, share, gamma, at)
    assert terms_at(problem, first, total).gap_term == pytest.approx(own)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 50),
    st.tuples(*[st.floats(0.01, 100)] * 3),
    st.integers(0, 2),
    st.floats(1, 1000),
)
def test_raising_an_alpha_never_raises_its_own_term(seed, alphas, which, factor):
    found = []
    for scale in (1.0, factor):
        weights = [alpha * (scale if i == which else 1) for i, alpha in enumerate(alphas)]
        named = dict(zip(("alpha_1", "alpha_2", "alpha_3"), weights, strict=True))
        *_, problem, _ = planned(seed, **named)
        terms = terms_at(problem, solve(problem, problem.total_steps), problem.total_steps)
        found.append((terms.energy_share, terms.delay_share, terms.gap_share)[which])
    assert found[1] <= found[0] * (1 + 1e-9)


def test_what_rounds_have_settled_stays():
    """After some rounds the gap is that of them and of the equal ones that are left."""
    grid, landscape, spread, problem, _ = planned(tau=20)
    gap, history, lost, weight = problem.gap, NOTHING, landscape.loss_drop, 0.0
    remaining = 20
    for t, at in enumerate([(1, 0, 0), (3, 1, 2), (0, 1, 1)], start=1):
        steps = int(grid.local_steps[at[0]])
        history = gap.after(history, at, steps)
        remaining -= steps
        eta = gap.step_parameter / sqrt(t + 1)
        each = RoundSpread(*(getattr(gap.spread, name)[at] for name in vars(gap.spread)))
        lost += raised(landscape, each, eta**2, eta**3)
        weight += eta * steps
    found = gap.over(history, remaining)
    at = (3, 0, 1)  # K = 4: 13 steps in four rounds
    share = remaining / 16
    for t in range(4, 8):
        eta = gap.step_parameter / sqrt(t + 1)
        each = RoundSpread(*(getattr(gap.spread, name)[at] for name in vars(gap.spread)))
        lost += share * raised(landscape, each, eta**2, eta**3)
        weight += share * eta * 4
    assert found[at] == pytest.approx(2 * lost / weight)
    # Nine rounds are left: one step each would not do.
    assert np.isinf(found[0]).all() and np.isfinite(found[1:]).all()


EDGES = "parent,child\nc,A\nc,B\nA,0\nA,1\nA,2\nB,3\nB,4\nB,5\n"


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A function that makes a run of two servers, A trusted and B not, three devices each."""
    edges = tmp_path_factory.mktemp("tree") / "edges.csv"
    edges.write_text(EDGES)
    records = records_of([12] * 6)

    usual = {"rounds": 12, "local_steps": 2, "batch_size": None, "step_size": "constant"}
    trust = {"ratios": None, "untrusted": ["B"]}

    def make(privacy=None, training=None, sums=None, on_digits=False, controlled=True, **control):
        blocks = {
            "topology": {"fanouts": None, "edges": str(edges), "trust": trust},
            "model": {"name": "softmax"},
            "dataset": {"scale": "unit_norm"},
            "training": usual | (training or {}),
            "privacy": {"epsilon": 4, "clipping_norm": 0.5} | (privacy or {}),
            "control": {"enabled": True, "max_local_steps": 6} | control if controlled else {},
            "secure_aggregation": sums or {},
            "threads": 1,
        }
        data = (digits(),) if on_digits else records
        return Experiment.from_config(load_config(blocks), *data)

    return make


UPLOAD = {"mechanism": "upload"}


@pytest.mark.parametrize("privacy", [{}, UPLOAD], ids=["gradient", "upload"])
@pytest.mark.parametrize("local_steps", [1, 3, 5])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_priced_noise_is_what_a_calibrated_run_draws(make, privacy, local_steps, size):
    """Where no record is sampled and subnets are alike, to rounding; tau = 10 is none of those
    that are calibrated."""
    aggregate = {"local_aggregation": {1: 2}} if not privacy else {"local_aggregation": None}
    training = {"rounds": 10 // local_steps + 1, "local_steps": local_steps}
    experiment = make(privacy, aggregate)
    schedule = experiment.plan.schedule
    total = training["rounds"] * local_steps
    prices = prices_of(experiment)
    spread, at = prices(total), prices.grid.place(Choice(local_steps, size, size))
    alone = make(privacy, aggregate | training | {"participants": size}, controlled=False)
    mechanism = alone.calibrate().mechanism
    drawn = round_noise(
        replace(alone.network, participants=size),
        mechanism.lock_step,
        mechanism.noise,
        replace(schedule, local_steps=local_steps),
        alone.model.n_parameters,
    )
    assert spread.noise[at] == pytest.approx(drawn.arriving, rel=0.02)


def test_all_rounds_are_planned_before_training_and_verified(make):
    experiment = make(on_digits=True, dissimilarity=0.1)
    controller = experiment.controller
    trained = experiment.train().metrics
    state, rounds = ControllerState(controller.problem.total_steps), []
    while state.remaining:
        control, state = plan_round(controller, state, 1.0)
        rounds.append(control)
    assert len(rounds) == len(experiment.run_plan.rounds) <= 12
    assert sum(r.choice.local_steps for r in rounds) == controller.problem.total_steps
    assert trained["eta"].tolist() == [rounds[t - 1].step_size for t in trained["round"]]
    assert set(trained["beta"]) == {smoothness_of(experiment.config, experiment.model, (1, 1, 1))}
    assert experiment.summary()["guarantee"] == "verified"
    assert 0.98 * 4 < experiment.calibrate().mechanism.epsilon(len(rounds)) <= 4
    assert experiment.summary()["rounds"] == len(rounds)


@pytest.mark.parametrize("privacy", [{}, UPLOAD], ids=["gradient", "upload"])
def test_sums_are_priced(make, privacy):
    """Messages that are read as sums only cost more, and shared noise is less."""
    local = {"local_aggregation": None}
    alone = make(privacy, local, on_digits=True, dissimilarity=0.1)
    summed = make(privacy, local, {"layers": [2], "noise": "shared"}, True, dissimilarity=0.1)
    energies = [e.controller.problem.grid.energy_j for e in (alone, summed)]
    assert (energies[1] > energies[0]).all()
    noises = [prices_of(e)(12).noise[:, -1, -1] for e in (alone, summed)]
    assert (noises[1] < noises[0]).all()
    trained = summed.train().metrics
    rounds, plan = trained["round"].tolist(), summed.run_plan
    assert rounds[-1] == len(plan.rounds)
    assert summed.calibrate().mechanism.epsilon(rounds[-1]) <= 4


@pytest.mark.parametrize("name", ["softmax", "logistic"])
@pytest.mark.parametrize("classes", [2, 10])
def test_beta_and_the_trace_bound_the_second_derivative(name, classes):
    """By autograd, at random weights and records of length one, and where the bound is met."""
    config = load_config({"model": {"name": name}, "dataset": {"scale": "unit_norm"}})
    model = build_model(config.model, (1, 2, 2), classes, seed=0)
    assert smoothness_of(
        load_config(config.model_dump() | {"control": {"enabled": True}}), model, (1, 2, 2)
    ) == pytest.approx(model.curvature, rel=1e-4)
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    for draw in range(60):
        scale = 10.0 ** (draw % 3 - 2)
        w = scale * torch.randn(model.n_parameters, generator=generator, dtype=torch.float64)
        if draw == 0:
            w = torch.zeros_like(w)
        x = torch.randn(1, 1, 2, 2, generator=generator, dtype=torch.float64)
        x, label = x / x.norm(), torch.tensor([draw % classes])

        def loss(vector, x=x, label=label):
            return model.loss(model.scores(vector, x), label).sum()

        second = torch.autograd.functional.hessian(loss, w)
        values = torch.linalg.eigvalsh(second)
        assert values.max() <= model.curvature + 1e-9
        assert second.trace() <= model.curvature_sum + 1e-9
        largest = max(largest, float(second.trace()))
    assert largest > 0.9 * model.curvature_sum


def test_rounds_suffice_where_the_gap_weighs_nothing():
    """No local step of 40 remains after the last of 12 rounds."""
    *_, problem, _ = planned(tau=40, alpha_3=0)
    assert solve(problem, 40).local_steps == 4


def test_a_tau_that_the_rounds_have_no_room_for_is_refused(make):
    assert make(tau=72).controller.problem.total_steps == 72
    with pytest.raises(InputError, match="control.tau = 73: is more than training.rounds = 12"):
        make(tau=73)


def test_a_loss_without_a_known_curvature_asks_for_a_declared_beta(make):
    config = load_config({"control": {"enabled": True}, "model": {"name": "svm"}})
    model = build_model(config.model, (1, 8, 8), 10, seed=0)
    with pytest.raises(InputError, match="control.smoothness = None: has no bound for model.name"):
        smoothness_of(config, model, (1, 8, 8))
    declared = load_config(config.model_dump() | {"control": {"enabled": True, "smoothness": 2}})
    assert smoothness_of(declared, model, (1, 8, 8)) == 2


@pytest.mark.full
def test_planning_300_rounds_at_10_000_devices_takes_5_seconds_at_most():
    changes = {
        "topology": {"fanouts": [100, 100], "trust": {"ratios": [0.5]}},
        "partition": {"scheme": "iid", "samples_per_device": None},
        "training": {"rounds": 300, "local_steps": 1, "batch_size": None},
        "privacy": {"delta": 1e-5},
        "control": {"enabled": True, "smoothness": 1.0, "dissimilarity": 0.1},
    }
    experiment = Experiment.from_config(load_config(changes), *records_of([2] * 10_000))
    _ = experiment.plan, experiment.samples, experiment.model
    started = perf_counter()
    controller = experiment.controller
    state = ControllerState(controller.problem.total_steps)
    while state.remaining:
        _, state = plan_round(controller, state, 1.0)
    assert perf_counter() - started < 5


def test_a_longer_gap_has_more_rounds():
    """300 rounds of one step: the mechanism's gap falls with tau where there is no noise."""
    zeros = np.zeros((1, 1, 1))
    landscape, steps = Landscape(1.0, 1.0, 1.0, 1.0), np.array([1])
    gap = MechanismGap(landscape, RoundSpread(*[zeros] * 4), steps, 1.0, StepSums(300))
    values = [gap.over(NOTHING, total).item() for total in (1, 10, 100, 300)]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(2 * sqrt(2))
