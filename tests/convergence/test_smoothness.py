"""The estimate of beta: exact on quadratics, never above the true constant."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.convergence.measurement import beta_of, observe, probe

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
