"""Rounds as they are planned before training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RoundPlan:
    """What is decided of one round before training.

    Attributes:
        layers: for local step k = 1…K the layer up to which models travel after it, or None;
            the last is 0.
        step_size: eta^t.
        network: which of the run's networks, that differ in who takes part, the round has.
    """

    layers: tuple[int | None, ...]
    step_size: float
    network: int = 0
