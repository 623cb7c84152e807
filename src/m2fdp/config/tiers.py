"""The block of D's clock: how long clients and server take for how much of a split model."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from m2fdp.config.types import (
    Block,
    Count,
    FromText,
    NonNegative,
    Number,
    Positive,
    Probability,
)

# Deeper ones take longer to count than to describe.
_DEEPEST = 1010
_MOST_CLIENT_ROUNDS = 200_000
# The CPUs whose times D's code has.
_MEASURED_CPUS = (0.1, 4.0)


def _model(name: str) -> str:
    depth = int(name[6:]) if re.fullmatch(r"resnet\d{1,4}", name) else 0
    if not 20 <= depth <= _DEEPEST or depth % 18 != 2:
        raise ValueError(
            f"valid: resnet56, resnet110, or any resnetN of N = 18 b + 2 layers, "
            f"from resnet20 to resnet{_DEEPEST}"
        )
    return name


def _pair(value: Any) -> Any:
    """`0.2/30` is D's way to write a profile; lists can't stand on a command line."""
    return value.split("/") if isinstance(value, str) else value


Profile = Annotated[list[Positive], BeforeValidator(_pair), Field(min_length=2, max_length=2)]


class ClockConfig(Block):
    """Simulated seconds of D's clients: what they compute and send (D Sec. 4.1)."""

    model: Annotated[str, AfterValidator(_model)] = Field(
        default="resnet56",
        description="Whose FLOPs and bytes are billed: resnet56, resnet110, or any resnetN of "
        "N = 18 b + 2 layers.",
    )
    width: Annotated[Count, Field(le=1024)] = Field(
        default=16, description="Channels of its first module; D's is 16."
    )
    clients: Annotated[Count, Field(le=1000)] = Field(default=10, description="K.")
    records: Count = Field(
        default=50_000, description="Training records of all clients, who hold equally many."
    )
    rounds: Count = Field(default=150, description="R, rounds of the plan.")
    cpu_gflops: Positive = Field(
        default=150.0,
        description="10^9 FLOPs a second of one CPU of D's; follows from D's Table 1.",
    )
    server_gflops: Positive = Field(
        default=350.0, description="10^9 FLOPs a second of the server, for each client it serves."
    )
    server: Literal["unlimited", "shared"] = Field(
        default="unlimited",
        description="The server trains its parts of all clients' models at once (unlimited, D), or "
        "one after the other (shared).",
    )
    scaling: Literal["measured", "linear"] = Field(
        default="measured",
        description="How slow a client of so many CPUs is: by the ratios of D's code (measured; "
        "0.1 to 4 CPUs), or 1 / CPUs (linear).",
    )
    rate_unit: Literal["mebibyte", "megabit"] = Field(
        default="mebibyte",
        description="What a profile's rate counts a second: MiB, as D's tables imply, or Mbit, as "
        "D's text says.",
    )
    noise: Annotated[float, Number, Field(ge=0, le=1)] = Field(
        default=0.05,
        description="Standard deviation of the logarithm of a client's computing time, by round; "
        "0 = none.",
    )
    profiles: Annotated[list[Profile], FromText, Field(min_length=1)] = Field(
        default=[[4.0, 100.0], [2.0, 30.0], [1.0, 30.0], [0.2, 30.0], [0.1, 10.0]],
        description="CPUs and link rate of a client's kinds, 4/100|0.2/30 on the command line; at "
        "the start each kind has an equal share of the clients.",
    )
    switch_every: Count | None = Field(
        default=50, description="Rounds between two changes of profiles; null = none."
    )
    switch_share: Probability = Field(
        default=0.3, description="Share of the clients that then draw a new profile."
    )
    label_bytes: NonNegative = Field(
        default=8.0, description="Of a record's label, sent with its activations."
    )

    @property
    def depth(self) -> int:
        """Layers of the model."""
        return int(self.model.removeprefix("resnet"))

    @model_validator(mode="after")
    def _countable(self) -> ClockConfig:
        if (product := self.rounds * self.clients) > _MOST_CLIENT_ROUNDS:
            raise ValueError(f"rounds x clients = {product:,} is more than {_MOST_CLIENT_ROUNDS:,}")
        if self.records < self.clients:
            raise ValueError("records must be as many as clients at least")
        least, most = _MEASURED_CPUS
        if self.scaling == "measured" and not all(
            least <= cpus <= most for cpus, _ in self.profiles
        ):
            raise ValueError(
                f"scaling: measured knows {least:g} to {most:g} CPUs; set it to linear"
            )
        return self
