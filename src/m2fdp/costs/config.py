"""The block of what messages and steps cost."""

from typing import ClassVar, Literal

from m2fdp.core.blocks import Block, Decibel, NonNegative, Positive


class ResourcesConfig(Block):
    """Powers, rates and costs of the energy and delay model (J Sec. VI-A)."""

    marks = {"no_release": True}

    wireless_power_dbm: Decibel = 24.0
    """Power of links below layer 1."""
    wireless_rate_mbps: Positive = 35.0
    """Rate of links below layer 1."""
    wired_power_dbm: Decibel = 38.0
    """Power of links into the cloud."""
    wired_rate_mbps: Positive = 100.0
    """Rate of links into the cloud."""
    # Q, of a message's M parameters: float32.
    bits_per_parameter: ClassVar[int] = 32
    step_delay_s: NonNegative = 0.2
    """Seconds of a device's local step."""
    step_energy_j: NonNegative = 1e-3
    """Joules of a device's local step."""
    uplinks: Literal["sequential", "parallel"] = "sequential"
    """Whether the children of one server transmit in turn (sequential, J's Gamma) or at once
    (parallel)."""
