"""What `privacy` says of G's rule."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from m2fdp.core.blocks import Block, Epsilon, Number, key

# Who reads keys of the rule.
_PAPERS_WEIGHTS: list[JsonValue] = ["privacy.mechanism: weights", "privacy.calibration: paper"]
Caught = Annotated[int, Number, Field(ge=0, le=10_000_000)] | None


class ExposuresConfig(Block):
    """How many messages somebody outside catches, for G's rule (G Sec. 3.2; weights)."""

    uplinks: Caught = None
    """t_1, a device's uploads; null = each of the schedule, here and below."""
    downlinks: Caught = None
    """t_2, an edge server's broadcasts after local aggregations."""
    cloud_rounds: Caught = None
    """t_3, of the `uplinks` those of global aggregations."""
    edge_uplinks: Caught = None
    """t_4, an edge server's messages to the cloud."""
    cloud_downlinks: Caught = None
    """t_5, the cloud's broadcasts."""


class PaperPrivacy(Block):
    """What the target is against those outside, and what of it they catch."""

    epsilon_cloud: Epsilon | None = key(None, since="0.5.0", read_by=_PAPERS_WEIGHTS)
    """epsilon_2 of G's rule, for what passes the cloud (weights, calibration: paper); null =
    epsilon."""
    exposures: ExposuresConfig = key(
        ExposuresConfig(), since="0.5.0", read_by="privacy.mechanism: weights"
    )
    downlink: Literal["top_up", "full", "none"] = key(
        "top_up", since="0.5.0", read_by=_PAPERS_WEIGHTS
    )
    """What servers and cloud add to broadcasts under G's rule: what uploads lack (top_up), all
    of it (full), or none."""
