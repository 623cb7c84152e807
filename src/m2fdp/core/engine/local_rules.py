"""Local rules: what one local step makes of a model, besides how its gradient is clipped."""

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
# What a rule has, in the order in which errors name them.
RULE_MEMBERS = ("anchored", "step")
KEEPING_MEMBERS = ("reports", "first", "of", "report")


class LocalRule(Protocol):
    """One local step of several learners.

    Records may enter through `descend` alone: what it adds is clipped, and, where noise comes at
    every step, noised. What else a rule does then follows from what is released anyway. Where
    noise comes later (`upload`), what two runs differ by must spread no further than by plain
    steps.
    """

    @property
    def anchored(self) -> bool:
        """Whether it looks at `anchors`."""

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        """Take models (n, M) one step further, in place.

        Args:
            anchors: (n, M), the models that the learners last received; None unless `anchored`.
                Below a proximal term that is centred elsewhere, the models that it is centred at.
            eta: the step size.
        """


class KeepingRule(LocalRule, Protocol):
    """A rule with slots: what it keeps of every learner from step to step and round to round.

    A lock-step group is one learner, whose slots its head keeps. Noise is inside `descend`, so all
    that is kept, and reported, follows from noised steps.
    """

    @property
    def reports(self) -> frozenset[str]:
        """What each learner sends up beside its model at a round's end: a vector (M,) a name."""

    def first(self, weights: Tensor) -> Named:
        """What a learner has before its first round, (M,) each; of what `report` does not keep,
        before every round. Weights are a global model (M,)."""

    def of(self, device: Named, server: Named) -> LocalRule:
        """The rule of some learners in a round.

        Args:
            device: their slots, (n, M) each, which a step writes in place.
            server: the server rule's, which have travelled down with the model.
        """

    def report(self, device: Named, steps: int, eta: float) -> tuple[Named, Named]:
        """What learners keep, and what they report, (n, M) each, after a round of so many steps."""


@dataclass(frozen=True)
class GradientStep:
    """w <- w - eta g (J eq. 7)."""

    anchored: bool = False

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        descend(models)


@dataclass(frozen=True)
class ProximalStep:
    """A rule's step, and the proximal term's: - eta mu (w - anchor), of the model before it.

    G Alg. 1 line 6 and FedProx (Li et al. 2020) add mu/2 ||w - anchor||^2 to a device's loss. Only
    the loss's own gradient, in `local`, is clipped: the anchor and the model are known already.

    Attributes:
        mu: its factor; eta mu is at most 1, so that no step goes past the anchor.
        local: the rule whose step it is.
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
    """A user's own rule (`Rules` makes one of it), on which epsilon is conditional.

    The engine calls it for one learner at a time, with noise inside `descend`. What the rule then
    does to the model is post-processing of a noised step, if records enter by `descend` alone. That
    is a rule's promise; what is refused here are mistakes.

    Attributes:
        rule: the user's.
        name: its own or its algorithm's, for errors.
        longest: the length that a model may have at a step of size eta, before which rounding it
            would tell of a record; None = any.
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
            InputError: it fails, calls `descend` with anything but a model like the one that it
                is given, with one that is too long, or not exactly once. A second call would
                release the records again.
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
    """One step of a rule of a user's own (`OwnRule.step`), on nobody's records, before anything is
    written: of the model (1, M), in place; `server` is what the server rule begins with."""
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
    """Whether it is the project's own all through, and so may step many learners at once."""
    if type(rule) is ProximalStep:
        return is_known(rule.local)
    return type(rule) is not OwnRule and own_code.is_ours(rule)


def adds_up(rule: LocalRule) -> bool:
    """Whether a step's noise is the same before and after it: the rule adds the gradient step to
    what depends on no record, so that noise may be drawn later, with that of others.

    Known of the project's own rules alone, whatever others say of themselves.
    """
    if type(rule) is ProximalStep:
        return adds_up(rule.local)
    return type(rule) is GradientStep
