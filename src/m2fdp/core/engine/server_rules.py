"""Server rules: from a round's aggregate to the next global model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from m2fdp.core.config import ServerConfig
from m2fdp.core.engine.process import Named

if TYPE_CHECKING:
    from torch import Tensor


class ServerRule(Protocol):
    """From the last global model and the aggregate to the next: post-processing of what the cloud
    has received, which costs no privacy."""

    def start(self, weights: Tensor) -> Named:
        """The slots before the first round, from w^(1), (M,)."""

    def step(self, weights: Tensor, aggregate: Tensor, slots: Named) -> tuple[Tensor, Named]:
        """The next global model (M,) and the slots, from the round's first global model (M,) and
        its aggregate (M,)."""


class HearingRule(ServerRule, Protocol):
    """A server rule for a local rule whose learners report (`KeepingRule`)."""

    def hear(self, slots: Named, reported: Named) -> Named:
        """The slots after the learners' reports, (M,) each: sums over learners who take part, by
        their weight in the global model. `step` comes next."""


class AddingRule(ServerRule, Protocol):
    """A server rule under which what aggregates bring adds up."""

    def carried(self, rounds: int) -> np.ndarray:
        """The factors (T,) of the updates of rounds t = 1…T in the model after round T."""


@dataclass(frozen=True)
class TakeAggregate:
    """The aggregate is the next global model (J eq. 13)."""

    def carried(self, rounds: int) -> np.ndarray:
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
        """1 + beta + … + beta^(T-t): (T,)."""
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
        return {
            "m": weights.new_zeros(weights.shape),
            "v": weights.new_full(weights.shape, self.tau**2),
        }

    def step(self, weights: Tensor, aggregate: Tensor, slots: Named) -> tuple[Tensor, Named]:
        update = aggregate - weights
        squared = update * update
        m = self.beta_1 * slots["m"] + (1 - self.beta_1) * update
        v = slots["v"] - (1 - self.beta_2) * squared * (slots["v"] - squared).sign()
        stepped = weights + self.learning_rate * m / (v.sqrt() + self.tau)
        return stepped, {"m": m, "v": v}


def adding(rule: ServerRule) -> AddingRule | None:
    """The rule, if updates add up under it."""
    return rule if isinstance(rule, TakeAggregate | Momentum) else None


def server_rule_of(config: ServerConfig) -> ServerRule:
    """The configured rule."""
    if config.rule == "momentum":
        return Momentum(config.momentum)
    if config.rule == "yogi":
        return Yogi(config.learning_rate)
    return TakeAggregate()
