"""FedYogi's steps, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from m2fdp.simulation.server_rules import Yogi


def test_two_steps_of_yogi_by_hand():
    rule = Yogi(learning_rate=0.1, beta_1=0.9, beta_2=0.99, tau=1e-3)
    w = torch.tensor([1.0], dtype=torch.float64)
    slots = rule.start(w)
    assert slots["m"].item() == 0 and slots["v"].item() == pytest.approx(1e-6)
    w, slots = rule.step(w, torch.tensor([1.5], dtype=torch.float64), slots)
    # D = 0.5: m = 0.05, v = 1e-6 + 0.01 * 0.25.
    m, v = 0.05, 1e-6 + 0.0025
    expected = 1 + 0.1 * m / (math.sqrt(v) + 1e-3)
    assert w.item() == pytest.approx(expected, rel=1e-12)
    # D = 0.01, whose square is below v: v falls by 0.01 * 1e-4.
    w2, slots = rule.step(w, w + 0.01, slots)
    m, v = 0.9 * m + 0.1 * 0.01, v - 0.01 * 1e-4
    assert slots["v"].item() == pytest.approx(v, rel=1e-9)
    expected += 0.1 * m / (math.sqrt(v) + 1e-3)
    assert w2.item() == pytest.approx(expected, rel=1e-9)
