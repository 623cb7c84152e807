"""Server rules: what the cloud makes of the model that a round ends in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

Slots = Mapping[str, Tensor]


class ServerRule(Protocol):
    """From the last global model and the aggregate to the next: it sees no record.

    What it computes follows from models that the cloud has received, so it costs no privacy.
    """

    def start(self, weights: Tensor) -> Slots:
        """What it keeps from round to round, before the first; weights are w^(1), (M,)."""

    def step(self, weights: Tensor, aggregate: Tensor, slots: Slots) -> tuple[Tensor, Slots]:
        """The next global model (M,), and what is kept.

        Args:
            weights: the global model that the round began with, (M,).
            aggregate: the mean that it ended in, (M,).
        """


@dataclass(frozen=True)
class TakeAggregate:
    """The aggregate is the next global model (J eq. 13)."""

    def start(self, weights: Tensor) -> Slots:
        """Nothing is kept."""
        return {}

    def step(self, weights: Tensor, aggregate: Tensor, slots: Slots) -> tuple[Tensor, Slots]:
        """The aggregate as it is."""
        return aggregate, slots
