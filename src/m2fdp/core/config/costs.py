"""The block of what a run costs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from m2fdp.core.blocks import (
    NO_RELEASE,
    Block,
    Count,
    Decibel,
    NonNegative,
    Positive,
)


class ResourcesConfig(Block):
    """Powers, rates and costs of the energy and delay model (J Sec. VI-A)."""

    marks = {NO_RELEASE: True}

    wireless_power_dbm: Decibel = Field(default=24.0, description="Power of links below layer 1.")
    wireless_rate_mbps: Positive = Field(default=35.0, description="Rate of links below layer 1.")
    wired_power_dbm: Decibel = Field(default=38.0, description="Power of links into the cloud.")
    wired_rate_mbps: Positive = Field(default=100.0, description="Rate of links into the cloud.")
    bits_per_parameter: Count = Field(default=32, description="Q, of a message's M parameters.")
    step_delay_s: NonNegative = Field(default=0.2, description="Seconds of a device's local step.")
    step_energy_j: NonNegative = Field(default=1e-3, description="Joules of a device's local step.")
    uplinks: Literal["sequential", "parallel"] = Field(
        default="sequential",
        description="Whether the children of one server transmit in turn (sequential, J's Gamma) "
        "or at once (parallel).",
    )
