"""The block of the controller."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from m2fdp.core.blocks import (
    NO_RELEASE,
    PINNED,
    READ_BY,
    SINCE,
    Block,
    Count,
    NonNegative,
    Number,
    Positive,
)


class ControlConfig(Block):
    """The adaptive controller of step size, local steps and participation (J Sec. V)."""

    marks = {NO_RELEASE: True}

    enabled: bool = Field(default=False, description="Whether it decides; algorithm: m2fdp only.")
    alpha_1: NonNegative = Field(
        default=1.0,
        description="Weight of the energy, over its value in rounds of K^1 steps with all devices.",
        json_schema_extra={READ_BY: "control.enabled"},
    )
    alpha_2: NonNegative = Field(
        default=1.0,
        description="Weight of the delay, over its value in such rounds.",
        json_schema_extra={READ_BY: "control.enabled"},
    )
    alpha_3: NonNegative = Field(
        default=1.0,
        description="Weight of the stationarity gap, over its value in such rounds.",
        json_schema_extra={READ_BY: "control.enabled"},
    )
    gap: Literal["mechanism", "papers"] = Field(
        default="mechanism",
        description="The noise that the stationarity gap is of: mechanism, what is really drawn, "
        "where tau and the step size are chosen, too; papers, that of J eq. 28, which grows with "
        "K^4.",
        json_schema_extra={SINCE: "0.7.0", READ_BY: "control.enabled", PINNED: True},
    )
    tau: Count | None = Field(
        default=None,
        description="Local steps of the whole run; null = chosen, at most training.rounds * "
        "training.local_steps, and with gap: papers just so many.",
        json_schema_extra={READ_BY: "control.enabled"},
    )
    smoothness: Positive | Literal["estimated"] | None = Field(
        default=None,
        description="beta of the devices' losses, declared; null = a bound from the range of the "
        "features (softmax and logistic). With gap: papers also estimated, every round from their "
        "gradients, a release that makes the privacy guarantee conditional.",
        json_schema_extra={READ_BY: "control.enabled"},
    )
    dissimilarity: Positive | None = Field(
        default=None,
        description="zeta, how far devices' gradients are from their mean, in the root of the mean "
        "square, declared; null = the clipping norm, which bounds it.",
        json_schema_extra={SINCE: "0.7.0", READ_BY: ["control.enabled", "control.gap: mechanism"]},
    )
    max_local_steps: Annotated[int, Number, Field(ge=1, le=10_000)] = Field(
        default=40,
        description="K^max, at most so many local steps a round.",
        json_schema_extra={READ_BY: "control.enabled"},
    )
    step_size_factor: Positive = Field(
        default=1.0,
        description="c of the step size c * min(1/K, 1/tau) / beta / sqrt(t + 1) with gap: "
        "papers; 1 is the paper's.",
        json_schema_extra={READ_BY: ["control.enabled", "control.gap: papers"]},
    )
    initial_local_steps: Count = Field(
        default=5,
        description="K^1: rounds of so many local steps with all devices are what energy, delay "
        "and gap are relative to; with gap: papers the first round is one.",
        json_schema_extra={READ_BY: "control.enabled"},
    )

    @model_validator(mode="after")
    def _solvable(self) -> ControlConfig:
        if not self.alpha_1 + self.alpha_2 + self.alpha_3:
            raise ValueError("one of alpha_1, alpha_2 and alpha_3 must be positive")
        if self.initial_local_steps > self.max_local_steps:
            raise ValueError("initial_local_steps must not pass max_local_steps")
        if self.gap == "mechanism" and self.smoothness == "estimated":
            raise ValueError(
                "smoothness: estimated is known only while a run goes on, and gap: mechanism plans "
                "it before; declare a number, or use null, or gap: papers"
            )
        return self


def decided_by(config: Any) -> tuple[str, ...]:
    """The prefixes of keys that a controlled run's releases depend on."""
    return ("control.", "resources.") if config.control.enabled else ()
