"""The block of sums that hide their terms."""

from typing import Annotated, Literal

from pydantic import Field

from m2fdp.core.blocks import SINCE, Block, Count, FromText, Number, key


class SecureAggregationConfig(Block):
    """Sums that hide their terms (Bonawitz et al. 2017; H Sec. IV-A)."""

    marks = {SINCE: "0.3.0"}

    layers: Annotated[list[Count], FromText] = []
    """Layers whose nodes' messages are only ever seen as a sum: in a tree of two tiers [2] are
    the devices, [1] the servers below the cloud."""
    decode: Literal["parent", "cloud"] = key("parent", read_by="secure_aggregation.layers")
    """Who reads the sum: the parent of those who send, or the cloud alone."""
    protocol: Literal["ideal", "masks"] = key("ideal", read_by="secure_aggregation.layers")
    """Sums as they are (ideal), or masked as real devices would (masks), with the same sums."""
    noise: Literal["separate", "shared"] = key("separate", read_by="secure_aggregation.layers")
    """Every sender's noise is enough by itself (separate), or only the sum's is (shared)."""
    threshold: Count | None = key(None, read_by="secure_aggregation.layers")
    """t: a sum of fewer senders is never read; null = floor(2n/3) + 1 of n."""
    dropout: Annotated[float, Number, Field(ge=0, lt=1)] = key(
        0.0, read_by="secure_aggregation.layers"
    )
    """The chance that a sender falls silent after sharing its keys."""
