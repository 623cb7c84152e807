"""Blocks of the network: the tree, who is trusted in it, who adds noise, who reads only sums."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from m2fdp.core.config.types import (
    READ_BY,
    SINCE,
    Alternatives,
    Block,
    Count,
    FromText,
    Name,
    Number,
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


class SecureAggregationConfig(Block):
    """Sums that hide their terms (Bonawitz et al. 2017; H Sec. IV-A)."""

    layers: Annotated[list[Count], FromText] = Field(
        default=[],
        description="Layers whose nodes' messages are only ever seen as a sum: [2] are the zones' "
        "devices of a tree of two tiers, [1] the servers below the cloud.",
    )
    decode: Literal["parent", "cloud"] = Field(
        default="parent",
        description="Who reads the sum: the parent of those who send, or the cloud alone, for whom "
        "servers between add what they can't read.",
        json_schema_extra={READ_BY: "secure_aggregation.layers"},
    )
    protocol: Literal["ideal", "masks"] = Field(
        default="ideal",
        description="Sums as they are, without their terms (ideal), or of what senders mask "
        "(masks), as real nodes must; a simulated run takes the same sums as they are.",
        json_schema_extra={READ_BY: "secure_aggregation.layers"},
    )
    noise: Literal["separate", "shared"] = Field(
        default="separate",
        description="Every sender's noise is enough by itself (separate), or only the sum's is "
        "(shared).",
        json_schema_extra={READ_BY: "secure_aggregation.layers"},
    )
    threshold: Count | None = Field(
        default=None,
        description="t: a sum of fewer senders is never read; null = floor(2n/3) + 1 of n.",
        json_schema_extra={READ_BY: "secure_aggregation.layers"},
    )
    dropout: Annotated[float, Number, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="The chance that a sender falls silent after sharing its keys.",
        json_schema_extra={READ_BY: "secure_aggregation.layers"},
    )
    on_loss: Literal["skip", "stop"] = Field(
        default="skip",
        description="Where too few are left: go on without their sum, or stop the run.",
        json_schema_extra={READ_BY: "secure_aggregation.layers"},
    )


class ZonesConfig(Block):
    """Who adds noise in `algorithm: hdp_mixed`: the cases C1 to C7 of H Sec. V."""

    device_noise: Probability = Field(
        default=0.5,
        description="The share of zones (beta of C3, C7) or of every zone's devices (alpha of C5) "
        "where devices add noise.",
    )
    device_noise_of: Literal["zones", "devices"] = Field(
        default="zones", description="What `device_noise` is a share of."
    )
    server_noise: Probability = Field(
        default=0.5,
        description="The share of zones whose super-node adds noise (beta of C6, alpha of C7).",
    )
    cloud_noise: bool = Field(
        default=False, description="Whether the cloud, then trusted, adds noise (C4 to C7)."
    )
    both_layers: bool = Field(
        default=False,
        description="Super-nodes of zones whose devices add noise add some too (note on C3).",
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
