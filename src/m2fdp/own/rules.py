"""What is enforced of a user's own rules, clip factors and losses, whatever they do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from m2fdp.core import own_code
from m2fdp.core.engine.rules import (
    ClipFactor,
    Descend,
    KeepingRule,
    LocalRule,
    Named,
    Rules,
    any_length,
    keeping,
)
from m2fdp.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

# A computed norm below it may be too small: squares of what is below 1e-19 vanish in float32.
_SMALLEST = 1e-12


@dataclass(frozen=True)
class OneByOne:
    """A user's own clip factor. It sees one norm at a time (`torch.func.vmap`): none depends on
    another record. No norm times it is above C; a factor below 0, or not finite, counts as 0."""

    factor: ClipFactor

    def __call__(self, norms: Tensor, clipping_norm: float) -> Tensor:
        if not norms.numel():  # vmap takes no norms for a mistake
            return norms
        limits = clipping_norm / norms.clamp_min(_SMALLEST)
        factors = self.uncapped(norms.flatten(), clipping_norm).view_as(norms).to(norms)
        return factors.minimum(limits).where((factors > 0) & factors.isfinite(), 0.0)

    def uncapped(self, norms: Tensor, clipping_norm: float) -> Tensor:
        """The own code's factors (n,) of norms (n,)."""
        import torch

        return torch.func.vmap(lambda norm: self.factor(norm, clipping_norm))(norms.clone())


def own_factor(factor: ClipFactor) -> OneByOne:
    """A user's own clip factor, which is given one norm at a time."""
    return factor if isinstance(factor, OneByOne) else OneByOne(factor)


@dataclass(frozen=True)
class OwnRule:
    """A user's own rule, called for one learner at a time, with noise inside `descend`. Epsilon is
    conditional on it: records must enter by `descend` alone.

    Attributes:
        name: name of the rule or its algorithm, for errors.
        longest: length that a model may have at a step of size eta.
    """

    rule: LocalRule
    name: str
    longest: Callable[[float], float] = any_length
    is_own = True

    @property
    def anchored(self) -> bool:
        return self.rule.anchored

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
                raise self._miscalled("more than once")
            kind = [(each.shape, each.dtype, each.device) for each in (models, model)]
            if kind[0] != kind[1]:
                raise self._miscalled("with another thing than a model like its own")
            longest = self.longest(eta)
            if longest != math.inf and not model.double().norm() <= longest:
                raise self._miscalled("with a model so long that rounding tells of a record")
            descend(model)

        received = None if anchors is None else anchors.clone()
        with self._guarded():
            self.rule.step(models, received, eta, descend_once)
        if calls != 1:
            raise self._miscalled("not once" if not calls else "more than once")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except Exception:
            with own_code.guarded("algorithm", self.name, "fails in a local step"):
                raise

    def _miscalled(self, how: str) -> InputError:
        valid = "in a step; valid: once, with its model"
        return InputError(
            "algorithm", self.name, f"has a local rule that calls descend {how} {valid}"
        )


class OwnKeepingRule(OwnRule):
    """A user's own rule that keeps slots (a `KeepingRule`)."""

    @property
    def keeper(self) -> KeepingRule:
        return cast(KeepingRule, self.rule)

    @property
    def reports(self) -> frozenset[str]:
        return self.keeper.reports

    def first(self, weights: Tensor) -> Named:
        with self._guarded():
            return self.keeper.first(weights.clone())

    def of(self, device: Named, server: Named) -> LocalRule:
        with self._guarded():
            return OwnRule(self.keeper.of(device, server), self.name, self.longest)

    def report(self, device: Named, steps: int, eta: float) -> tuple[Named, Named]:
        with self._guarded():
            return self.keeper.report(device, steps, eta)


def own_rule(rule: LocalRule) -> OwnRule:
    """A user's own local rule, which is guarded."""
    if isinstance(rule, OwnRule):
        return rule
    kind = OwnKeepingRule if hasattr(rule, "report") else OwnRule
    return kind(rule, type(rule).__qualname__)


def checked_rules(rules: Rules, algorithm: str, private: bool) -> Rules:
    """The rules, with the algorithm's name for errors, before anything is written.

    A clip factor's values are not judged: `OneByOne` bounds them.

    Raises:
        InputError: a local rule lacks a member; or a clip factor that a private run needs can't be
            given one norm at a time, or gives no factor a norm.
    """
    if private and isinstance(rules.clip_factor, OneByOne):
        _try_factor(rules.clip_factor, algorithm)
    if not isinstance(rules.local, OwnRule):
        return rules
    slots = ("reports", "first", "of", "report") if keeping(rules.local) else ()
    members = ("anchored", "step", *slots)
    lacking = [name for name in members if not hasattr(rules.local.rule, name)]
    if lacking:
        problem = f"has a local rule without {lacking[0]}; valid: {', '.join(members)}"
        raise InputError("algorithm", algorithm, problem)
    return replace(rules, local=replace(rules.local, name=algorithm))


def _try_factor(factor: OneByOne, algorithm: str) -> None:
    import torch

    norms = torch.tensor([0.0, 0.5, 2.0])
    one_by_one = "has a clip_factor that can't be vectorised over norms, one seen at a time"
    with own_code.guarded("algorithm", algorithm, one_by_one):
        factors = factor.uncapped(norms, 1.0)
    if factors.shape != norms.shape:
        raise InputError("algorithm", algorithm, "has a clip_factor that gives no factor a norm")


def try_local_rule(rule: LocalRule, model: Tensor, eta: float, server: Named) -> None:
    """Try one step of a user's own rule without records, before anything is written, on the model
    (1, M), in place, with the server rule's first slots."""
    slots, with_slots = {}, keeping(rule)
    if with_slots is not None:
        slots = {name: first[None].clone() for name, first in with_slots.first(model[0]).items()}
        rule = with_slots.of(slots, server)
    rule.step(model, model.clone() if rule.anchored else None, eta, lambda model: None)
    if with_slots is not None:
        with_slots.report(slots, 1, eta)
