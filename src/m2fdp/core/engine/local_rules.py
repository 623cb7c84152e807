"""Local rules: what one local step makes of a model around its clipped gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from m2fdp.core import own_code
from m2fdp.core.engine.process import Named
from m2fdp.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

# Takes models (n, M) one clipped gradient step down, in place.
Descend: TypeAlias = "Callable[[Tensor], None]"


class LocalRule(Protocol):
    """One local step of several learners.

    Records may enter through `descend` alone, which clips them and, if every step is noised, adds
    the noise. All else is post-processing. Where noise comes later (`upload`), a step must part two
    models no further than a plain step does.
    """

    @property
    def anchored(self) -> bool:
        """Whether it looks at `anchors`."""

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        """Take models (n, M) one step further, in place.

        Args:
            anchors: (n, M), the models that learners last received, or the proximal term's centre;
                None unless `anchored`.
            eta: the step size.
        """


class KeepingRule(LocalRule, Protocol):
    """A rule with slots, which it keeps for every learner (at its head) from step to step and round
    to round. Noise is inside `descend`, so all that is kept follows from noised steps."""

    @property
    def reports(self) -> frozenset[str]:
        """Names of vectors (M,) that each learner sends up beside its model at a round's end."""

    def first(self, weights: Tensor) -> Named:
        """A learner's slots, (M,) each, before its first round, from a global model (M,). Slots
        that `report` does not keep begin each round like that."""

    def of(self, device: Named, server: Named) -> LocalRule:
        """The rule of some learners in a round, from their slots (n, M), which a step writes in
        place, and from the server's, which have come down with the model."""

    def report(self, device: Named, steps: int, eta: float) -> tuple[Named, Named]:
        """The slots that learners keep, and their reports, (n, M) each, after a round's steps."""


@dataclass(frozen=True)
class GradientStep:
    """w <- w - eta g (J eq. 7)."""

    anchored: bool = False

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        descend(models)


@dataclass(frozen=True)
class ProximalStep:
    """A rule's step, less eta mu (w - anchor) with w before the step.

    G Alg. 1 line 6 and FedProx (Li et al. 2020) add `mu/2 ||w - anchor||^2` to the loss. This
    term is not clipped: anchor and model are known already. eta mu is at most 1.
    """

    mu: float
    local: LocalRule = GradientStep()
    anchored: bool = True

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        pull = models - cast("Tensor", anchors)
        self.local.step(models, anchors if self.local.anchored else None, eta, descend)
        models.sub_(pull, alpha=eta * self.mu)


@dataclass(frozen=True)
class OwnRule:
    """A user's own rule (`Rules` wraps it), called for one learner at a time, with noise inside
    `descend`.

    Epsilon is conditional on it: records must enter by `descend` alone. Here mistakes are refused.

    Attributes:
        name: name of the rule or its algorithm, for errors.
        longest: length that a model may have at a step of size eta; None = any.
    """

    rule: LocalRule
    name: str
    longest: Callable[[float], float] | None = None

    @property
    def anchored(self) -> bool:
        return self.rule.anchored

    @property
    def reports(self) -> frozenset[str]:
        return cast(KeepingRule, self.rule).reports

    def first(self, weights: Tensor) -> Named:
        with self._guarded():
            return cast(KeepingRule, self.rule).first(weights.clone())

    def of(self, device: Named, server: Named) -> LocalRule:
        with self._guarded():
            return replace(self, rule=cast(KeepingRule, self.rule).of(device, server))

    def report(self, device: Named, steps: int, eta: float) -> tuple[Named, Named]:
        with self._guarded():
            return cast(KeepingRule, self.rule).report(device, steps, eta)

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        """The rule's step of one learner, models and anchors (1, M).

        Raises:
            InputError: it fails, or does not call `descend` once, with a model of the same kind
                that is not too long. A second call would release the records again.
        """
        calls = 0

        def descend_once(model: Tensor) -> None:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise _miscalled(self.name, "more than once")
            kind = [(each.shape, each.dtype, each.device) for each in (models, model)]
            if kind[0] != kind[1]:
                raise _miscalled(self.name, "with another thing than a model like its own")
            longest = math.inf if self.longest is None else self.longest(eta)
            if longest != math.inf and not model.double().norm() <= longest:
                raise _miscalled(self.name, "with a model so long that rounding tells of a record")
            descend(model)

        received = None if anchors is None else anchors.clone()
        with self._guarded():
            self.rule.step(models, received, eta, descend_once)
        if calls != 1:
            raise _miscalled(self.name, "not once" if not calls else "more than once")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except Exception:
            with own_code.guarded("algorithm", self.name, "fails in a local step"):
                raise


def _miscalled(name: str, how: str) -> InputError:
    problem = f"has a local rule that calls descend {how} in a step; valid: once, with its model"
    return InputError("algorithm", name, problem)


def try_local_rule(rule: LocalRule, model: Tensor, eta: float, server: Named) -> None:
    """Try one step of a user's own rule without records, before anything is written, on the model
    (1, M), in place, with the server rule's first slots."""
    if not isinstance(rule, OwnRule):
        return
    slots, with_slots = {}, keeping(rule)
    if with_slots is not None:
        slots = {name: first[None].clone() for name, first in rule.first(model[0]).items()}
        rule = cast(OwnRule, rule.of(slots, server))
    rule.step(model, model.clone() if rule.anchored else None, eta, lambda model: None)
    if with_slots is not None:
        rule.report(slots, 1, eta)


def keeping(rule: LocalRule) -> KeepingRule | None:
    """The rule, if it keeps slots."""
    keeps = hasattr(rule.rule if isinstance(rule, OwnRule) else rule, "report")
    return cast(KeepingRule, rule) if keeps else None


def is_known(rule: LocalRule) -> bool:
    """Whether all of it is this package's, so that it may step many learners at once."""
    if type(rule) is ProximalStep:
        return is_known(rule.local)
    return type(rule) is not OwnRule and own_code.is_ours(rule)


def adds_up(rule: LocalRule) -> bool:
    """Whether the rule only adds the gradient step to what depends on no record, so that a step's
    noise may be drawn later, summed with others'. Known of this package's rules alone."""
    if type(rule) is ProximalStep:
        return adds_up(rule.local)
    return type(rule) is GradientStep
