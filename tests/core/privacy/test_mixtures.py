"""Mixtures of Gaussians against dp-accounting's own."""

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from m2fdp.core.privacy.mixtures import mixture_distribution


@settings(max_examples=20)
@given(
    shifts=st.lists(st.floats(0.05, 8), min_size=1, max_size=6, unique=True).map(sorted),
    weights=st.lists(st.floats(0.01, 1), min_size=7, max_size=7),
    stays=st.floats(0, 0.999),
    count=st.integers(1, 20),
)
def test_same_curve_as_dp_accounting(shifts, weights, stays, count):
    """With and without a chance that the record stays away, whatever that leaves to the rest."""
    assume(stays or len(shifts) > 1)  # one certain shift is no mixture
    moves = np.array(weights[: len(shifts)])
    law = [0.0, *shifts] if stays else shifts
    chances = [stays, *(1 - stays) * moves / moves.sum()] if stays else moves / moves.sum()
    spacing = max(shifts) / 40
    ours = mixture_distribution(law, chances, spacing).self_compose(count)
    theirs = from_mixture_gaussian_mechanism(
        1.0, law, chances, value_discretization_interval=spacing
    ).self_compose(count)
    for delta in (1e-2, 1e-5):
        expected = theirs.get_epsilon_for_delta(delta)
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("largest", [1e-10, 1e-5, 400.0])
def test_shifts_of_any_size(largest):
    """Far smaller and larger than rounding lets Newton's method settle."""
    law = ([0.0, largest / 2, largest], [0.9, 0.05, 0.05])
    spacing = (largest**2 / 2 + 9 * largest) / 500
    spent = mixture_distribution(*law, spacing).get_epsilon_for_delta(1e-2)
    whole = from_mixture_gaussian_mechanism(
        1.0, [largest], [1.0], value_discretization_interval=spacing
    )
    assert 0 <= spent <= whole.get_epsilon_for_delta(1e-2) * (1 + 1e-9)
