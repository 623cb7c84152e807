"""The block of sums that hide their terms."""

from typing import Annotated, Literal

from pydantic import Field

from m2fdp.core.blocks import READ_BY, SINCE, Block, Count, FromText, Number


class SecureAggregationConfig(Block):
    """Sums that hide their terms (Bonawitz et al. 2017; H Sec. IV-A)."""

    marks = {SINCE: "0.3.0"}

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
        description="Sums as they are, without their terms (ideal), or masked in every round as "
        "real devices would (masks), which is slower and ends in the same sums.",
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
