"""Rounds as they are planned before training."""

from __future__ import annotations

from dataclasses import dataclass

from m2fdp.topology.network import Network


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


@dataclass(frozen=True, eq=False)
class RunPlan:
    """All of a run's rounds that is known before training.

    Attributes:
        networks: one for every set of numbers of devices that take part.
        rounds: t = 1…T, each with the number of its network. Where a controller chooses step
            sizes they are not known yet; all privacy laws are in units of them, so any will do.
    """

    networks: tuple[Network, ...]
    rounds: tuple[RoundPlan, ...]
