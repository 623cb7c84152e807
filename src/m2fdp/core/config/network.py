"""Blocks of the network: the tree, who is trusted in it, and what its messages cost."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from m2fdp.core.blocks import (
    NO_RELEASE,
    SINCE,
    Alternatives,
    Block,
    Count,
    Decibel,
    FromText,
    Name,
    NonNegative,
    Positive,
    Probability,
    extended,
)


class TrustConfig(Alternatives):
    """Which servers are trusted: shares per layer, or the untrusted ones by name (J eq. 4)."""

    alternatives = {"untrusted": "ratios"}

    ratios: Annotated[list[Probability], FromText] | None = Field(
        default=[0.5],
        description="p_1 … p_L-1: the share of trusted servers among the children of untrusted "
        "ones, layer by layer.",
    )
    untrusted: Annotated[list[Name], FromText] | None = Field(
        default=None, description="Or the untrusted servers by name (set `ratios` to null)."
    )

    @model_validator(mode="after")
    def _one_of(self) -> TrustConfig:
        if self.ratios is not None and self.untrusted is not None:
            raise ValueError("give ratios or untrusted, not both")
        return self


@extended("topology")
class TopologyConfig(Alternatives):
    """The tree: fan-outs from the cloud down, or a file of edges; and who is trusted in it."""

    alternatives = {"edges": "fanouts"}

    fanouts: Annotated[list[Count], FromText, Field(min_length=1)] | None = Field(
        default=[10, 5],
        description="Children of a node, layer by layer from the cloud: [10, 5] is 10 edge servers "
        "with 5 devices each. With `edges` they must agree, or be null.",
    )
    edges: Name | None = Field(
        default=None,
        description="Or a file of edges: CSV with parent,child, or a YAML list of pairs.",
    )
    weights: Literal["uniform", "samples"] = Field(
        default="uniform",
        description="rho, the weight of a node at its parent: the same for all siblings (uniform), "
        "or by the number of training records below it (samples).",
        json_schema_extra={SINCE: "0.2.0"},
    )
    trust: TrustConfig = TrustConfig()

    @model_validator(mode="after")
    def _some_tree(self) -> TopologyConfig:
        if self.fanouts is None and self.edges is None:
            raise ValueError("give fanouts (such as 10|5) or edges (a file)")
        return self


class ResourcesConfig(Block):
    """Powers, rates and costs of the energy and delay model (J Sec. VI-A)."""

    marks = {NO_RELEASE: True}

    wireless_power_dbm: Decibel = Field(default=24.0, description="Power of links below layer 1.")
    wireless_rate_mbps: Positive = Field(default=35.0, description="Rate of links below layer 1.")
    wired_power_dbm: Decibel = Field(default=38.0, description="Power of links into the cloud.")
    wired_rate_mbps: Positive = Field(default=100.0, description="Rate of links into the cloud.")
    # Q, of a message's M parameters: float32.
    bits_per_parameter: ClassVar[int] = 32
    step_delay_s: NonNegative = Field(default=0.2, description="Seconds of a device's local step.")
    step_energy_j: NonNegative = Field(default=1e-3, description="Joules of a device's local step.")
    uplinks: Literal["sequential", "parallel"] = Field(
        default="sequential",
        description="Whether the children of one server transmit in turn (sequential, J's Gamma) "
        "or at once (parallel).",
    )
