"""Local rules: what one local step makes of a model, besides how its gradient is clipped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

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
                Below a proximal term that is centred elsewhere, the models that it is centred at.
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


@dataclass(frozen=True)
class ProximalStep:
    """A rule's step, and the proximal term's: - eta mu (w - anchor), of the model before it.

    G Alg. 1 line 6 and FedProx (Li et al. 2020) add mu/2 ||w - anchor||^2 to a device's loss. Only
    the loss's own gradient, in `local`, is clipped: the anchor and the model are known already.

    Attributes:
        mu: of which eta mu is at most 1, so that no step goes past the anchor.
        local: the rule whose step it is.
    """

    mu: float
    local: LocalRule = GradientStep()
    anchored: bool = True

    @property
    def drifts(self) -> frozenset[Drift]:
        """A pull to one point widens no difference; `m2fdp.privacy.taint` counts the points'."""
        return self.local.drifts

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        """The rule's step, and the pull."""
        pull = models - cast(Tensor, anchors)
        self.local.step(models, anchors if self.local.anchored else None, eta, descend)
        models.sub_(pull, alpha=eta * self.mu)
