"""What is measured along a run: against autograd, drawn minibatches and a known quadratic; the
estimate of beta is exact on quadratics, never above the true constant."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import one_record_each, process_of, quadratic, without_noise
from tests.convergence.settings import mechanism_of, network_on
from torch import nn

from m2fdp.convergence.measurement import (
    beta_of,
    local_gradients,
    measure_run,
    observe,
    probe,
    run_rounds,
)
from m2fdp.core.config import ModelConfig, PrivacyConfig
from m2fdp.core.engine.minibatches import Shards, poisson_draw
from m2fdp.core.models.registry import build_model
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.streams import KeyedStreams
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.given.edges import tree_from_edges

PRIVACY = PrivacyConfig(mechanism="upload", epsilon=4, delta=1e-5, clipping_norm=1)


def random_shards(sizes, rate=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    total = sum(sizes)
    return Shards(
        torch.rand(total, 1, 8, 8, generator=generator),
        torch.randint(10, (total,), generator=generator),
        np.array(sizes),
        np.full(len(sizes), rate),
    )


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(),
        ModelConfig(name="logistic"),
        ModelConfig(name="svm"),
        ModelConfig(name="svm", hinge="crammer_singer"),
        ModelConfig(name="cnn12", channels=[2, 3, 4]),
    ],
    ids=lambda config: f"{config.name}-{config.hinge}",
)
def test_local_gradients_are_autograds(config):
    model = build_model(config, (1, 8, 8), 10, seed=1)
    shards = random_shards([300, 7])  # more than one part, and less than one
    weights = model.initial_vector() + 0.1
    found = local_gradients(model, weights, shards.features, shards.labels, shards.sizes)
    start = 0
    for device, size in enumerate(shards.sizes.tolist()):
        part = slice(start, start + size)
        vector = weights.clone().requires_grad_()
        losses = model.loss(model.scores(vector, shards.features[part]), shards.labels[part])
        (expected,) = torch.autograd.grad(losses.mean(), vector, retain_graph=True)
        assert found.losses[device].item() == pytest.approx(losses.mean().item(), rel=1e-5)
        torch.testing.assert_close(found.gradients[device], expected, rtol=1e-4, atol=1e-6)
        own = [torch.autograd.grad(loss, vector, retain_graph=True)[0] for loss in losses]
        mean_square = torch.stack(own).double().square().sum(dim=1).mean()
        assert found.mean_squares[device].item() == pytest.approx(mean_square.item(), rel=1e-4)
        start += size


def test_a_quadratic_on_a_ragged_tree_by_hand():
    """A has device 0, B has 1 and 2, so F weights them 1/2, 1/4, 1/4; grad F_j = w - c_j with
    c = 8, 0, 4. At w = 0: F = 1/2 · 32 + 1/4 · 0 + 1/4 · 8 = 18 and
    grad F = -(4 + 0 + 1) = -5. One step of 1/2 on each device: w = 4, 0, 2, so the cloud has
    1/2 · 4 + 1/2 · 1 = 2.5: F = 1/4 · 5.5² + 1/8 · (2.5² + 1.5²) = 8.625, grad F = -2.5.
    """
    tree = tree_from_edges([("c", "A"), ("c", "B"), ("A", "0"), ("B", "1"), ("B", "2")])
    shards = one_record_each(torch.tensor([8.0, 0.0, 4.0]).view(3, 1, 1, 1))
    plans = Schedule(3, 1, {}, 0.5, "constant").round_plans()
    process = process_of(*without_noise(tree), quadratic(), shards)
    table = measure_run(process, plans, evaluate_every=2)
    assert table["round"].tolist() == [0, 2, 3]
    every = measure_run(process, plans, evaluate_every=1)
    assert every["loss"].tolist()[:2] == pytest.approx([18, 8.625])
    assert every["gradient_norm_sq"].tolist()[:2] == pytest.approx([25, 6.25])
    assert every["smoothness"].tolist() == pytest.approx([1.0] * 4)
    assert every["largest_gradient"].tolist()[:2] == pytest.approx([8, 5.5])
    assert every["gradient_variance"].tolist() == [0.0] * 4  # whole shards
    # The table is of the run's own models.
    *_, last = run_rounds(process, plans)
    assert every["gradient_norm_sq"].iloc[-1] == pytest.approx((last.weights.item() - 5) ** 2)


@pytest.mark.parametrize(("divide_by", "tolerance"), [("expected", 0.04), ("drawn", 0.1)])
def test_gradient_variance_is_that_of_drawn_minibatches(divide_by, tolerance):
    """Over 4000 draws, whose mean has a standard error of 0.6 %. With the fixed divisor the
    figure is exact, so within 4 %: false alarm < 1e-8. With the drawn one it is good to about
    2/B = 5 %, so within 10 %.
    """
    shards = random_shards([200], rate=0.2)
    network = network_on(tree_from_fanouts([1]))
    schedule = Schedule(1, 1, {}, 0.5, "constant")
    privacy = (
        PRIVACY if divide_by == "drawn" else PRIVACY.model_copy(update={"mechanism": "gradient"})
    )
    mechanism = mechanism_of(network, schedule, privacy, shards.sizes, shards.rates)
    assert mechanism.clipping.divide_by == divide_by
    model = build_model(ModelConfig(), (1, 8, 8), 10, seed=0)
    process, plans = process_of(network, mechanism, model, shards), schedule.round_plans()
    claimed = measure_run(process, plans, 1)["gradient_variance"].iloc[0]
    errors = torch.softmax(torch.zeros(200, 10), 1) - nn.functional.one_hot(shards.labels, 10)
    own = torch.einsum("rc,rf->rcf", errors, shards.features.flatten(1)).flatten(1)
    squares = []
    for step in range(1, 4001):
        drawn = own[poisson_draw(np.repeat(shards.rates, shards.sizes), KeyedStreams(5), 1, step)]
        size = 40 if divide_by == "expected" else max(1, len(drawn))
        squares.append((drawn.sum(dim=0) / size - own.mean(dim=0)).square().sum().item())
    assert np.mean(squares) == pytest.approx(claimed, rel=tolerance)


# The estimate of beta.

CURVATURES = torch.tensor([[1.0, 3.0], [2.0, 0.5]])  # of two devices' F_i = sum of c w²/2


def gradients(weights):
    return CURVATURES * weights


def test_the_largest_ratio_over_devices_and_looks():
    state = observe({}, torch.zeros(2), gradients(torch.zeros(2)))
    assert beta_of(state) is None
    # Along the first axis the devices have curvatures 1 and 2.
    first = torch.tensor([1.0, 0.0])
    state = observe(state, first, gradients(first))
    assert beta_of(state) == pytest.approx(2.0)
    # From there along the second: 3 and 0.5.
    second = torch.tensor([1.0, -2.0])
    state = observe(state, second, gradients(second))
    assert beta_of(state) == pytest.approx(3.0)
    # Back along the first: smaller ratios change nothing.
    back = torch.tensor([0.0, -2.0])
    assert beta_of(observe(state, back, gradients(back))) == pytest.approx(3.0)


def test_devices_that_have_not_moved_say_nothing():
    at = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    state = observe({}, at, gradients(at))
    assert beta_of(observe(state, at, gradients(at))) is None
    moved = torch.tensor([[1.0, 1.0], [2.0, 1.0]])
    assert beta_of(observe(state, moved, gradients(moved))) == pytest.approx(2.0)


def test_the_state_before_is_left_alone():
    state = observe({}, torch.zeros(2), torch.zeros(2, 2))
    observe(state, torch.ones(2), gradients(torch.ones(2)))
    assert beta_of(state) is None
    assert state["weights"].tolist() == [[0, 0]]


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=2, max_size=6))
def test_the_estimate_never_passes_beta_and_never_falls(points):
    state, before = {}, 0.0
    for point in points:
        weights = torch.tensor(point, dtype=torch.float64)
        state = observe(state, weights, CURVATURES.double() * weights)
        assert before <= (beta_of(state) or 0.0) <= 3.0 * (1 + 1e-9)
        before = beta_of(state) or 0.0


def test_a_probe_is_one_unit_down_each_devices_gradient():
    own = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    models = probe(torch.tensor([1.0, 1.0]), own)
    torch.testing.assert_close(models, torch.tensor([[0.4, 0.2], [1.0, 1.0]]))
