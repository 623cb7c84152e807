"""The block of the controller."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from m2fdp.core.blocks import NO_RELEASE, Block, Count, NonNegative, Number, Positive, key


class ControlConfig(Block):
    """The adaptive controller of step size, local steps and participation (J Sec. V)."""

    marks = {NO_RELEASE: True}

    enabled: bool = False
    """Whether it decides; algorithm: m2fdp only."""
    alpha_1: NonNegative = key(1.0, read_by="control.enabled")
    """Weight of the energy, over its value in rounds of K^1 steps with all devices."""
    alpha_2: NonNegative = key(1.0, read_by="control.enabled")
    """Weight of the delay, over its value in such rounds."""
    alpha_3: NonNegative = key(1.0, read_by="control.enabled")
    """Weight of the stationarity gap, over its value in such rounds."""
    gap: Literal["mechanism", "papers"] = key(
        "mechanism", since="0.7.0", read_by="control.enabled", pinned=True
    )
    """The noise that the gap is of: mechanism, what is really drawn; papers, that of J eq. 28."""
    tau: Count | None = key(None, read_by="control.enabled")
    """Local steps of the whole run; null = chosen, at most training.rounds *
    training.local_steps; with gap: papers just so many."""
    smoothness: Positive | Literal["estimated"] | None = key(None, read_by="control.enabled")
    """beta of the devices' losses, declared; null = a bound from the features' range (softmax
    and logistic). With gap: papers also estimated from gradients in clear, which makes epsilon
    conditional."""
    dissimilarity: Positive | None = key(
        None, since="0.7.0", read_by=["control.enabled", "control.gap: mechanism"]
    )
    """zeta, how far devices' gradients are from their mean, declared; null = the clipping norm,
    which bounds it."""
    max_local_steps: Annotated[int, Number, Field(ge=1, le=10_000)] = key(
        40, read_by="control.enabled"
    )
    """K^max, at most so many local steps a round."""
    step_size_factor: Positive = key(1.0, read_by=["control.enabled", "control.gap: papers"])
    """c of the step size c * min(1/K, 1/tau) / beta / sqrt(t + 1) with gap: papers; 1 is J's."""
    initial_local_steps: Count = key(5, read_by="control.enabled")
    """K^1: energy, delay and gap are relative to rounds of so many steps with all devices."""

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
