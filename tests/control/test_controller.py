"""(P) against brute force, its tie rule and trade-offs, the step size, and what choosing costs."""

from itertools import product
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import process_of
from tests.convergence.settings import network_of, network_on

from m2fdp import load_config
from m2fdp.control.config import ControlConfig
from m2fdp.control.gaps import PapersGap
from m2fdp.control.problem import (
    Choice,
    ChoiceGrid,
    Problem,
    build_problem,
    cost_grid,
    present_devices,
    solve,
    terms_at,
)
from m2fdp.control.run import Controller, ControllerState, plan_round
from m2fdp.convergence.bound import network_terms, noise_factor
from m2fdp.core.algorithms import build_plan
from m2fdp.core.config import (
    PrivacyConfig,
    ThreatConfig,
)
from m2fdp.core.privacy.calibration import no_privacy
from m2fdp.core.privacy.mechanisms import step_alone, step_together
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.trust import explicit_trust
from m2fdp.costs.config import ResourcesConfig
from m2fdp.costs.resources import Links
from m2fdp.given.edges import tree_from_edges

M = 7840
PRIVACY = PrivacyConfig(
    mechanism="upload", calibration="paper", epsilon=1, delta=1e-5, clipping_norm=1
)


def controller_of(network, every=5, **control):
    schedule = Schedule(10, 20, {} if every is None else {1: every}, 0.5, "constant")
    config = ControlConfig(**({"gap": "papers", "max_local_steps": 12} | control))
    links = Links(network, step_alone(network), M, ResourcesConfig())
    problem = build_problem(links, schedule, 0.1, PRIVACY, config)
    return Controller(problem, schedule, config.step_size_factor)


# What one round costs, against the function that bills it.

RAGGED = [
    ("cloud", "A"), ("cloud", "B"), ("A", "a"), ("B", "b"), ("B", "c"),
    ("a", "0"), ("a", "1"), ("a", "2"), ("b", "3"), ("b", "4"), ("c", "5"), ("c", "6"), ("c", "7"),
]  # fmt: skip


@pytest.mark.parametrize("uplinks", ["sequential", "parallel"])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("every", [None, 1, 3])
def test_every_cost_is_what_the_round_is_billed(uplinks, together, every):
    tree = tree_from_edges(RAGGED)
    trust = explicit_trust(tree, ["B", "b"])
    resources = ResourcesConfig(uplinks=uplinks)
    steps, sizes = np.arange(1, 8), np.arange(1, 4)
    for size in sizes:
        network = network_on(tree, trust, int(size))
        lock_step = step_together(network) if together else step_alone(network)
        links = Links(network, lock_step, M, resources)
        energy, delay = cost_grid(links, every, steps, (sizes, sizes))
        assert energy.shape == delay.shape == (7, 3, 3)
        for k in steps:
            schedule = Schedule(1, int(k), {} if every is None else {1: every}, 1, "constant")
            cost = links.round(schedule.layers())
            at = (k - 1, size - 1, size - 1)
            assert energy[at] == pytest.approx(cost.energy_j, rel=1e-12)
            assert delay[at] == pytest.approx(cost.delay_s, rel=1e-12)


def test_unlike_sizes_cost_what_their_branches_cost():
    """Two trusted servers and two untrusted ones of 5 devices; s_T = 2, s_U = 4, K = 3 with an
    aggregation at 2: 12 devices step, 12 messages twice; the cloud waits for the larger subnets.
    """
    network = network_of([4, 5], [0.5])
    links = Links(network, step_alone(network), M, ResourcesConfig())
    joules, seconds = cost_grid(links, 2, np.array([3]), (np.array([2]), np.array([4])))
    wireless_s, wired_s = M * 32 / 35e6, M * 32 / 100e6
    wireless_j, wired_j = 0.251188643 * wireless_s, 6.30957344 * wired_s
    energy = 3 * 12 * 1e-3 + 2 * 12 * wireless_j + 4 * wired_j
    assert joules.item() == pytest.approx(energy)
    assert seconds.item() == pytest.approx(3 * 0.2 + 2 * 4 * wireless_s + 4 * wired_s)


# (P)


def by_hand(problem, remaining):
    """Every choice in turn; the first of the least wins."""
    best = None
    grid, gap = problem.grid, problem.gap.values
    start = grid.start
    at = (
        start.local_steps - 1,
        grid.sizes[0].tolist().index(start.trusted),
        grid.sizes[1].tolist().index(start.untrusted),
    )
    for (k, steps), (a, s_t), (b, s_u) in product(
        enumerate(grid.local_steps), enumerate(grid.sizes[0]), enumerate(grid.sizes[1])
    ):
        if steps > remaining:
            continue
        part = remaining / problem.total_steps
        shares = (
            part * problem.resources[0][k, a, b] / problem.resources[0][at],
            part * problem.resources[1][k, a, b] / problem.resources[1][at],
            gap[k, a, b] / gap[at],
        )
        value = sum(alpha * share for alpha, share in zip(problem.alphas, shares, strict=True))
        if best is None or value < best[0] * (1 - 1e-12):
            best = value, Choice(int(steps), int(s_t), int(s_u))
    return best


alphas = st.floats(0.01, 100)


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=3),
    st.data(),
    alphas,
    alphas,
    alphas,
    st.integers(1, 200),
)
def test_search_is_brute_force(fanouts, data, alpha_1, alpha_2, alpha_3, remaining):
    n = len(fanouts) - 1
    ratios = data.draw(st.lists(st.sampled_from([0, 0.5, 1]), min_size=n, max_size=n))
    controller = controller_of(
        network_of(fanouts, ratios), alpha_1=alpha_1, alpha_2=alpha_2, alpha_3=alpha_3
    )
    value, choice = by_hand(controller.problem, remaining)
    found = solve(controller.problem, remaining)
    at_found = terms_at(controller.problem, found, remaining)
    assert at_found.objective == pytest.approx(value, rel=1e-9)
    assert found.local_steps <= remaining
    if at_found.objective != terms_at(controller.problem, choice, remaining).objective:
        return  # equal but for rounding
    assert found == choice


def made_up(objective, remaining=10):
    """A problem whose energy is all that counts."""
    energy = np.asarray(objective, dtype=float)
    k, a, b = energy.shape
    sizes = (np.arange(1, a + 1), np.arange(1, b + 1))
    ones = np.ones_like(energy)
    steps = np.arange(1, k + 1)
    # Of one round each: rounds times it is the energy.
    per_round = energy * steps[:, None, None] / remaining
    grid = ChoiceGrid(steps, sizes, per_round, ones, Choice(1, 1, 1))
    units = (1.0, 1.0, 1.0)
    return Problem(grid, PapersGap(ones), (1.0, 0.0, 0.0), remaining, units, starts_there=True)


def test_ties_go_to_fewest_steps_then_fewest_trusted_then_fewest_untrusted():
    energy = np.full((3, 3, 3), 2.0)
    energy[2, 0, 0] = energy[1, 2, 1] = energy[1, 1, 2] = energy[1, 1, 1] = 1.0
    assert solve(made_up(energy), 10) == Choice(2, 2, 2)
    energy[1, 1, 1] = 1.5
    assert solve(made_up(energy), 10) == Choice(2, 2, 3)
    energy[1, 1, 2] = 1.5
    assert solve(made_up(energy), 10) == Choice(2, 3, 2)
    assert solve(made_up(np.ones((3, 3, 3))), 10) == Choice(1, 1, 1)


@given(
    st.sampled_from([([3, 4], [0.5]), ([4, 3], [1]), ([2, 2, 4], [0.5, 0]), ([2, 2, 4], [0.5, 1])]),
    alphas,
    alphas,
    alphas,
    st.integers(0, 2),
    st.floats(1, 1000),
    st.integers(1, 200),
)
def test_raising_an_alpha_never_raises_its_own_term(
    shape, alpha_1, alpha_2, alpha_3, which, factor, remaining
):
    weights = [alpha_1, alpha_2, alpha_3]
    found = []
    for scale in (1.0, factor):
        weights[which] *= scale
        named = dict(zip(("alpha_1", "alpha_2", "alpha_3"), weights, strict=True))
        problem = controller_of(network_of(*shape), **named).problem
        terms = terms_at(problem, solve(problem, remaining), remaining)
        found.append((terms.energy_share, terms.delay_share, terms.gap_share)[which])
    assert found[1] <= found[0] * (1 + 1e-9)


def test_one_alpha_alone_takes_its_extreme():
    network = network_of([4, 5], [0.5])
    none = {"alpha_1": 0, "alpha_2": 0, "alpha_3": 0}
    least_gap = solve(controller_of(network, **(none | {"alpha_3": 1})).problem, 200)
    assert least_gap == Choice(1, 5, 5)
    least_delay = solve(controller_of(network, every=None, **(none | {"alpha_2": 1})).problem, 200)
    assert least_delay == Choice(12, 1, 1)


def test_terms_are_js():
    """E and Gamma are tau/K rounds' costs, nu is eq. 28 where both kinds are of one size."""
    controller = controller_of(network_of([4, 5], [0.5]))
    for size, steps, remaining in ((2, 3, 120), (5, 10, 200)):
        network = network_of([4, 5], [0.5], participants=size)
        links = Links(network, step_alone(network), M, ResourcesConfig())
        cost = links.round(Schedule(1, steps, {1: 5}, 1, "constant").layers())
        terms = terms_at(controller.problem, Choice(steps, size, size), remaining)
        assert terms.energy_term_j == pytest.approx(remaining / steps * cost.energy_j)
        assert terms.delay_term_s == pytest.approx(remaining / steps * cost.delay_s)
        factor = noise_factor(2, M, steps, 0.1, 1, 1e-5)
        total = network_terms(network, [1, 1]).total
        assert terms.gap_term == pytest.approx(float(factor * total))


def test_shares_are_relative_to_the_first_round():
    named = {"alpha_1": 2.0, "alpha_2": 3.0, "alpha_3": 4.0}
    problem = controller_of(network_of([4, 5], [0.5]), **named).problem
    first = terms_at(problem, Choice(5, 5, 5), 200)
    assert (first.energy_share, first.delay_share, first.gap_share) == (1, 1, 1)
    assert first.objective == 9
    later = terms_at(problem, Choice(10, 5, 5), 100)
    assert later.gap_share == pytest.approx(2**4)
    assert later.energy_share == pytest.approx(later.energy_term_j / first.energy_term_j)
    assert later.delay_share == pytest.approx(later.delay_term_s / first.delay_term_s)
    expected = 2 * later.energy_share + 3 * later.delay_share + 4 * later.gap_share
    assert later.objective == pytest.approx(expected)


def test_each_kind_of_subnet_lowers_its_own_noise():
    """p_1 = 1/2, alpha = 1: 2 · 1/2/s_T² + 1/2/s_U + 1/4 · 2."""
    problem = controller_of(network_of([4, 5], [0.5])).problem
    for s_t, s_u in product((1, 3, 5), (2, 4)):
        expected = 1 / s_t**2 + 0.5 / s_u + 0.5
        gap = terms_at(problem, Choice(1, s_t, s_u), 200).gap_term
        assert gap == pytest.approx(float(noise_factor(2, M, 1, 0.1, 1, 1e-5)) * expected)


@pytest.mark.parametrize(("ratio", "sizes"), [(0.0, (0, 5)), (1.0, (5, 0))])
def test_where_one_kind_of_subnet_is_missing_its_size_is_zero(ratio, sizes):
    network = network_of([4, 5], [ratio])
    controller = controller_of(network)
    assert (controller.problem.grid.start.trusted, controller.problem.grid.start.untrusted) == sizes
    choice = solve(controller.problem, 200)
    assert (choice.trusted == 0, choice.untrusted == 0) == (sizes[0] == 0, sizes[1] == 0)
    assert present_devices(network, controller.problem.grid.start).tolist() == [5] * 4


def test_small_subnets_give_all_their_devices():
    tree = tree_from_edges(RAGGED)
    trust = explicit_trust(tree, ["B"])  # a, b and c are trusted, but b's and c's ancestor is not
    network = network_on(tree, trust)
    assert present_devices(network, Choice(1, 2, 3)).tolist() == [2, 2, 3]
    controller = controller_of(network)
    assert controller.problem.grid.start == Choice(5, 3, 3)
    # b has two devices, so s_{L-1} of its kind stays 2.
    gaps = [terms_at(controller.problem, Choice(1, 3, size), 200).gap_term for size in (1, 2, 3)]
    assert gaps[0] > gaps[1] == gaps[2]


def test_large_subnets_are_looked_at_in_128_sizes():
    problem = controller_of(network_of([2, 1000], [0.5])).problem
    for sizes in problem.grid.sizes:
        assert len(sizes) == 128
        assert (sizes[0], sizes[-1]) == (1, 1000)
        assert (np.diff(sizes) > 0).all()


# Rounds


def test_a_run_starts_with_everybody_and_spends_tau_exactly():
    controller = controller_of(network_of([4, 5], [0.5]), step_size_factor=8.0, tau=203)
    state, controls = ControllerState(controller.problem.total_steps), []
    betas = iter(np.linspace(1, 3, 1000))
    while state.remaining:
        control, state = plan_round(controller, state, next(betas))
        controls.append(control)
    assert controls[0].choice == Choice(5, 5, 5)
    assert sum(control.choice.local_steps for control in controls) == 203
    for before, control in zip([controls[0], *controls], controls, strict=False):
        assert control.choice.local_steps <= min(12, control.remaining)
        gamma = 8.0 * min(1 / before.choice.local_steps, 1 / 203) / control.smoothness
        assert control.step_size == pytest.approx(gamma / np.sqrt(control.round + 1))
        if control.round > 1:
            assert control.choice == solve(controller.problem, control.remaining)
        assert control.terms == terms_at(controller.problem, control.choice, control.remaining)
    assert [control.round for control in controls] == list(range(1, len(controls) + 1))


def test_a_budget_below_the_first_rounds_steps_is_kept():
    controller = controller_of(network_of([4, 5], [0.5]), tau=3)
    control, state = plan_round(controller, ControllerState(controller.problem.total_steps), 1.0)
    assert control.choice.local_steps == 3
    assert state.remaining == 0


# What choosing costs


def fastest(call, repetitions=20):
    times = []
    for _ in range(repetitions):
        started = perf_counter()
        call()
        times.append(perf_counter() - started)
    return min(times)


@pytest.mark.full
@pytest.mark.parametrize("fanouts", [[1000, 10], [100, 100], [10, 1000]])
def test_choosing_takes_less_than_5_ms_at_10_000_devices(fanouts):
    controller = controller_of(network_of(fanouts, [0.5]), max_local_steps=40, tau=4000)
    _, state = plan_round(controller, ControllerState(controller.problem.total_steps), 1.0)
    assert fastest(lambda: plan_round(controller, state, 1.0)) < 5e-3


@pytest.mark.full
def test_choosing_takes_less_than_1_percent_of_a_round_at_50_devices():
    """A round of the default mechanism on 50 shards of 60 records of 28 x 28 pixels, K = 5."""
    import torch

    from m2fdp.core.config import ModelConfig
    from m2fdp.core.engine.minibatches import Shards
    from m2fdp.core.models.registry import build_model

    training = {"training.rounds": 10, "training.local_steps": 5, "training.learning_rate": 0.5}
    topology = {"topology.fanouts": [10, 5], "topology.trust.ratios": [0.5]}
    plan = build_plan(load_config(topology, training))
    mechanism = no_privacy(plan.network, plan.schedule.round_plans(), PRIVACY, ThreatConfig())
    shards = Shards(
        torch.rand(3000, 1, 28, 28), torch.randint(10, (3000,)), np.full(50, 60), np.ones(50)
    )
    model = build_model(ModelConfig(), (1, 28, 28), 10, seed=0)
    process = process_of(plan.network, mechanism, model, shards)
    (round_, *_) = plan.schedule.round_plans()
    start = process.start()
    controller = controller_of(plan.network, max_local_steps=40)
    _, state = plan_round(controller, ControllerState(controller.problem.total_steps), 1.0)
    choosing = fastest(lambda: plan_round(controller, state, 1.0))
    assert choosing < 0.01 * fastest(lambda: process.round(start, round_), 5)
