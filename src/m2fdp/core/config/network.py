"""Blocks of the network: the tree, who is trusted in it, who adds noise, who reads only sums."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from m2fdp.core.blocks import (
    READ_BY,
    SINCE,
    Alternatives,
    Block,
    Count,
    FromText,
    Name,
    Probability,
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


class SuperNodesConfig(Block):
    """Who the super-nodes, the lowest servers, are (H Sec. IV-A)."""

    kind: Literal["fixed", "elected"] = Field(
        default="fixed",
        description="Servers of their own (fixed), or in every round one of the zone's devices "
        "(elected).",
    )
    tolerance: Literal["crash", "byzantine"] = Field(
        default="byzantine",
        description="How colluding devices may behave in an election, which bounds their number: "
        "below (m - 1)/2 of a zone's m (crash), at most (m - 1)/3 (byzantine).",
        json_schema_extra={READ_BY: "topology.super_nodes.kind: elected"},
    )


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
    super_nodes: SuperNodesConfig = Field(
        default=SuperNodesConfig(), json_schema_extra={SINCE: "0.3.0"}
    )

    @model_validator(mode="after")
    def _some_tree(self) -> TopologyConfig:
        if self.fanouts is None and self.edges is None:
            raise ValueError("give fanouts (such as 10|5) or edges (a file)")
        return self
