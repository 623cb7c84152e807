"""When what happens: rounds, local steps, local aggregations and step sizes (J Sec. III-A)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from m2fdp.config import TrainingConfig
from m2fdp.errors import InputError
from m2fdp.schedule.rounds import Center, RoundPlan


@dataclass(frozen=True)
class Schedule:
    """The time scales of one run.

    Attributes:
        rounds: T.
        local_steps: K.
        local_aggregation: {layer l: a local aggregation up to l every so many local steps}.
        learning_rate: gamma.
        step_size_law: `constant` or `inverse_sqrt`.
        proximal, center: of every round's plan.
    """

    rounds: int
    local_steps: int
    local_aggregation: Mapping[int, int]
    learning_rate: float
    step_size_law: Literal["constant", "inverse_sqrt"]
    proximal: float = 0.0
    center: Center = "received"

    def step_size(self, round_: int) -> float:
        """eta^t: gamma, or gamma / sqrt(t + 1) (J Thm 1), for t = 1…T."""
        if self.step_size_law == "constant":
            return self.learning_rate
        return self.learning_rate / sqrt(round_ + 1)

    @property
    def largest_step(self) -> float:
        """The largest eta^t of the rounds."""
        return max(self.step_size(t) for t in range(1, self.rounds + 1))

    def layers(self) -> tuple[int | None, ...]:
        """For local step k = 1…K the layer up to which models travel after it, or None."""
        return tuple(self.aggregation_layer(step) for step in range(1, self.local_steps + 1))

    def round_plans(self) -> tuple[RoundPlan, ...]:
        """The plans of rounds t = 1…T."""
        layers = self.layers()
        return tuple(
            RoundPlan(layers, self.step_size(t), proximal=self.proximal, center=self.center)
            for t in range(1, self.rounds + 1)
        )

    def aggregation_layer(self, step: int) -> int | None:
        """The layer up to which models travel after local step k = 1…K; None = no aggregation.

        The last step is the global aggregation (layer 0). Of several layers that are due, the
        one nearest the cloud wins, so that the sets K_l of J Alg. 1 are disjoint.
        """
        if step == self.local_steps:
            return 0
        layers = [layer for layer, every in self.local_aggregation.items() if step % every == 0]
        return min(layers, default=None)


def build_schedule(config: TrainingConfig, depth: int) -> Schedule:
    """The configured schedule for a tree of the given depth L.

    Raises:
        InputError: a local aggregation at a layer that has no servers.
    """
    for layer in config.local_aggregation:
        if not 1 <= layer <= depth - 1:
            valid = f"1 to {depth - 1}" if depth > 1 else "none (null): this tree is a star"
            raise InputError(
                "training.local_aggregation",
                layer,
                f"is no layer of servers below the cloud; valid layers: {valid}",
            )
    return Schedule(
        config.rounds,
        config.local_steps,
        dict(config.local_aggregation),
        config.learning_rate,
        config.step_size,
        config.proximal,
        config.proximal_center,
    )
