"""Rounds as they are planned before training."""

from dataclasses import dataclass
from typing import Literal

from m2fdp.core.errors import InputError
from m2fdp.core.topology.network import Network

# What the proximal term pulls to: the model that was last received, or that the round began with.
Center = Literal["received", "global"]


@dataclass(frozen=True)
class RoundPlan:
    """What is decided of one round before training."""

    # The layer that models travel up to after step k = 1…K, or None; the last is 0.
    layers: tuple[int | None, ...]
    step_size: float  # eta^t
    network: int = 0  # index of the round's in `RunPlan.networks`
    proximal: float = 0.0  # mu, of the proximal term of every local step
    center: Center = "received"  # its centre

    @property
    def stretches(self) -> list[tuple[int, int, int]]:
        """Local steps up to an aggregation, one after the other: the numbers k of the first and
        the last of them, and the layer that models then travel up to."""
        result, first = [], 1
        for step, top in enumerate(self.layers, start=1):
            if top is not None:
                result.append((first, step, top))
                first = step + 1
        return result

    @property
    def pull(self) -> float:
        """eta mu: the part of the way to the centre that every local step goes."""
        return self.step_size * self.proximal


def check_pull(proximal: float, step_size: float, key: str = "training.proximal") -> None:
    """Refuse a pull eta mu above 1, for the largest step size: it would go past its centre.

    Args:
        key: who asks for the pull, for the error.

    Raises:
        InputError: it is, or is below 0, or no number.
    """
    if not 0 <= step_size * proximal <= 1:
        raise InputError(
            key,
            proximal,
            f"times the step size {step_size:.4g} is {step_size * proximal:.4g}, which pulls past "
            f"the centre; use at most 1/eta = {1 / step_size:.4g}, or smaller steps",
        )


@dataclass(frozen=True, eq=False)
class RunPlan:
    """All of a run's rounds that is known before training.

    Attributes:
        networks: one for every set of numbers of devices that take part.
        rounds: t = 1…T, each with the number of its network. Where a controller chooses step
            sizes they are not known yet; privacy laws are in units of them, so any will do. Then
            no proximal term is planned either: laws without one hold for any.
    """

    networks: tuple[Network, ...]
    rounds: tuple[RoundPlan, ...]
