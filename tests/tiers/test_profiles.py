"""Profiles of devices: shares, switches, noise, speeds."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.tiers.clock import draw_noise, draw_profiles, slowness
from m2fdp.tiers.config import ClockConfig


def test_what_was_measured_is_met_and_between_it_is_monotone():
    cpus = np.array([4.0, 2.0, 1.0, 0.2, 0.1])
    expected = np.array([16, 20, 34, 130, 250]) / 34
    assert slowness(cpus) == pytest.approx(expected)
    assert (np.diff(slowness(np.geomspace(0.1, 4, 50))) < 0).all()
    beyond = slowness(np.array([0.05, 8.0]))
    assert beyond == pytest.approx([500 / 34, 8 / 34])
    # Halfway between 1 and 2, by logarithms.
    assert slowness(np.array([np.sqrt(2.0)])) == pytest.approx(np.sqrt(20 / 34))


@given(
    clients=st.integers(1, 40),
    every=st.none() | st.integers(1, 6),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_profiles_change_at_switches_only_and_of_no_more_than_the_share(
    clients, every, share, seed
):
    config = ClockConfig(switch_every=every)
    with mock.patch.object(ClockConfig, "switch_share", share):
        drawn = draw_profiles(config, clients, 20, seed)
    changed = (np.diff(drawn, axis=0) != 0).sum(axis=1)
    switches = (np.arange(1, 20) % (every or 99)) == 0
    assert (changed[~switches] == 0).all()
    assert (changed <= round(share * clients)).all()
    assert np.ptp(np.bincount(drawn[0], minlength=5)) <= 1 and drawn.max() < 5


def test_draws_repeat_and_a_longer_plan_begins_like_a_shorter():
    config = ClockConfig(switch_every=3)
    long = draw_profiles(config, 12, 20, seed=4)
    assert (long[:8] == draw_profiles(config, 12, 8, seed=4)).all()
    assert (long != draw_profiles(config, 12, 20, seed=5)).any()
    noise = draw_noise(0.05, 4, 6, seed=4)
    assert (noise[:3, :2] == draw_noise(0.05, 2, 3, seed=4)).all()


def test_noise_has_its_deviation():
    """1,500 logarithms: deviation within 8 %, mean within 0.005, each four of its own."""
    logarithms = np.log(draw_noise(0.05, 10, 150, seed=0))
    assert logarithms.std() == pytest.approx(0.05, rel=0.08)
    assert abs(logarithms.mean()) < 0.0052
    assert (draw_noise(0.0, 3, 2, seed=0) == 1).all()
