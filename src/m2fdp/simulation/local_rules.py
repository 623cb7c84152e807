"""Local rules: what one local step makes of a model, besides how its gradient is clipped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from m2fdp.privacy.taint import Drift

# Takes models (n, M) one clipped gradient step down, in place.
Descend = Callable[[Tensor], None]


class LocalRule(Protocol):
    """One local step of several learners.

    Records may enter through `descend` alone: what it adds is clipped, and what else a rule does
    follows from models that the ledger counts already. Noise at every step covers any such rule.
    Where noise comes later (`upload`), what two runs differ by must spread no further than by
    plain steps: `drifts` names the assumptions of the ledger under which it does not.

    """

    @property
    def anchored(self) -> bool:
        """Whether it looks at `anchors`."""

    @property
    def drifts(self) -> frozenset[Drift]:
        """The values of `privacy.drift` that hold for it."""

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        """Take models (n, M) one step further, in place.

        Args:
            anchors: (n, M), the models that the learners last received; None unless `anchored`.
            eta: the step size.
        """


@dataclass(frozen=True)
class GradientStep:
    """w <- w - eta g (J eq. 7)."""

    anchored: bool = False
    drifts: frozenset[Drift] = frozenset({"worst_case", "smooth", "non_expansive"})

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        """The clipped gradient step alone."""
        descend(models)
