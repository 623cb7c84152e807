"""The rules that an algorithm brings: of a local step, of the server, of clipping and of lengths.

A refused plan needs no torch, so this module imports none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np

from m2fdp.core.config import ServerConfig
from m2fdp.core.own_code import GIVEN, is_ours

if TYPE_CHECKING:
    from torch import Tensor

# What somebody keeps, or sends beside a model, by name.
Named: TypeAlias = "Mapping[str, Tensor]"
# Takes models (n, M) one clipped gradient step down, in place.
Descend: TypeAlias = "Callable[[Tensor], None]"
# From norms (…) and the clipping norm C to factors (…): no norm times its factor is above C.
ClipFactor: TypeAlias = "Callable[[Tensor, float], Tensor]"


def flat_clip(norms: Tensor, clipping_norm: float) -> Tensor:
    """min(1, clipping norm / norm), and 1 for a zero norm."""
    import torch

    return (clipping_norm / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)


# --- how long models may be; see `m2fdp.core.privacy.rounding` -----------------------------------


class TooLongError(ArithmeticError):
    """A model is so long that float32 rounding could reveal a record, or it has no length."""

    def __init__(self, when: str, step_size: float, length: float) -> None:
        super().__init__(when, step_size, length)  # for pickle
        self.when, self.step_size, self.length = when, step_size, length

    def __str__(self) -> str:
        if not math.isfinite(self.length):
            return f"training diverged {self.when}"
        return (
            f"the model is {self.length:.3g} long {self.when}, and rounding moves it by more than "
            "an eighth of what one record does, which epsilon does not count"
        )


def any_length(step_size: float) -> float:
    """No bound: rounding reveals nothing that the run protects."""
    return math.inf


def refuse_too_long(length: float, longest: float, step_size: float, when: str) -> None:
    """Raise `TooLongError` if a length is above the longest, or no number."""
    if longest != math.inf and not length <= longest:
        raise TooLongError(when, step_size, length)


# --- a local step --------------------------------------------------------------------------------


class LocalRule(Protocol):
    """What one local step makes of several learners' models around their clipped gradients.

    Records may enter through `descend` alone, which clips them and, if every step is noised, adds
    the noise. All else is post-processing. Where noise comes later (`upload`), a step must part two
    models no further than a plain step does.
    """

    @property
    def anchored(self) -> bool:
        """Whether it looks at `anchors`."""

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        """Take models (n, M) one step of size eta further, in place.

        Args:
            anchors: (n, M), the models that learners last received, or the proximal term's centre;
                None unless `anchored`.
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


def keeping(rule: LocalRule) -> KeepingRule | None:
    """The rule, if it keeps slots."""
    return cast(KeepingRule, rule) if hasattr(rule, "report") else None


def is_known(rule: LocalRule) -> bool:
    """Whether all of it is this package's, so that it may step many learners at once. What wraps a
    user's own rule says that it `is_own`."""
    if type(rule) is ProximalStep:
        return is_known(rule.local)
    return is_ours(rule) and not getattr(rule, "is_own", False)


def adds_up(rule: LocalRule) -> bool:
    """Whether the rule only adds the gradient step to what depends on no record, so that a step's
    noise may be drawn later, summed with others'. Known of this package's rules alone."""
    return adds_up(rule.local) if type(rule) is ProximalStep else type(rule) is GradientStep


# --- the server ----------------------------------------------------------------------------------


class ServerRule(Protocol):
    """From the last global model and the aggregate to the next: post-processing of what the cloud
    has received, which costs no privacy."""

    def start(self, weights: Tensor) -> Named:
        """The slots before the first round, from w^(1), (M,)."""

    def step(self, weights: Tensor, aggregate: Tensor, slots: Named) -> tuple[Tensor, Named]:
        """The next global model (M,) and the slots, from the round's first global model (M,) and
        its aggregate (M,)."""


@dataclass(frozen=True)
class TakeAggregate:
    """The aggregate is the next global model (J eq. 13)."""

    def carried(self, rounds: int) -> np.ndarray:
        """The factors (T,) of the updates of rounds t = 1…T in the model after round T."""
        return np.ones(rounds)

    def start(self, weights: Tensor) -> Named:
        return {}

    def step(self, weights: Tensor, aggregate: Tensor, slots: Named) -> tuple[Tensor, Named]:
        return aggregate, slots


@dataclass(frozen=True)
class Momentum:
    """FedAvgM (Hsu et al. 2019): v <- beta v + D, w <- w + v, with D the aggregate
    less w, and v = 0 at first. With one local step a round it is the heavy ball."""

    momentum: float

    def carried(self, rounds: int) -> np.ndarray:
        """1 + beta + … + beta^(T-t), as above."""
        return np.cumsum(self.momentum ** np.arange(rounds))[::-1]

    def start(self, weights: Tensor) -> Named:
        return {"velocity": weights.new_zeros(weights.shape)}

    def step(self, weights: Tensor, aggregate: Tensor, slots: Named) -> tuple[Tensor, Named]:
        velocity = self.momentum * slots["velocity"] + (aggregate - weights)
        return weights + velocity, {"velocity": velocity}


@dataclass(frozen=True)
class Yogi:
    """FedYogi (Reddi et al. 2021): a step along the mean update, by its moments.

    D is the aggregate less w, and eta the learning rate. First m = 0 and v = tau^2. Then
    `m <- beta_1 m + (1 - beta_1) D`, `v <- v - (1 - beta_2) D^2 sign(v - D^2)`, and
    `w <- w + eta m / (sqrt(v) + tau)`.
    """

    learning_rate: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3

    def start(self, weights: Tensor) -> Named:
        zeros = weights.new_zeros(weights.shape)
        return {"m": zeros, "v": zeros + self.tau**2}

    def step(self, weights: Tensor, aggregate: Tensor, slots: Named) -> tuple[Tensor, Named]:
        update = aggregate - weights
        squared = update * update
        m = self.beta_1 * slots["m"] + (1 - self.beta_1) * update
        v = slots["v"] - (1 - self.beta_2) * squared * (slots["v"] - squared).sign()
        stepped = weights + self.learning_rate * m / (v.sqrt() + self.tau)
        return stepped, {"m": m, "v": v}


def adding(rule: ServerRule) -> TakeAggregate | Momentum | None:
    """The rule, if what aggregates bring adds up under it."""
    return rule if isinstance(rule, TakeAggregate | Momentum) else None


def server_rule_of(config: ServerConfig) -> ServerRule:
    """The configured rule."""
    if config.rule == "momentum":
        return Momentum(config.momentum)
    return Yogi(config.learning_rate) if config.rule == "yogi" else TakeAggregate()


# --- all rules of an algorithm -------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """What an algorithm may do its own way, whatever the network."""

    local: LocalRule = GradientStep()
    server: ServerRule = TakeAggregate()
    clip_factor: ClipFactor = flat_clip  # a user's own sees one norm at a time
    # Length that a model may have before a noised local step of size eta: rounding a longer one
    # could reveal a record. The same of a noised model that servers broadcast within a round.
    longest: Callable[[float], float] = any_length
    longest_received: Callable[[float], float] = any_length

    def __post_init__(self) -> None:
        if self.clip_factor is not flat_clip:
            object.__setattr__(self, "clip_factor", GIVEN["clip factor"](self.clip_factor))
        if not is_known(self.local):
            object.__setattr__(self, "local", GIVEN["local rule"](self.local))

    def within(self, longest: Callable[[float], float], noised: bool) -> Rules:
        """The rules with a longest length of a model at a step of size eta.

        Args:
            noised: whether every step is noised. Else nothing may depend on the length of models
                between two steps: the end of training would reveal it.
        """
        own: Any = self.local
        return replace(
            self,
            longest_received=longest,
            longest=longest if noised else self.longest,
            local=own if is_known(own) else replace(own, longest=longest),
        )
