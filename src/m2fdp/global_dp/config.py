"""What `privacy` says of G's rule."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from m2fdp.core.blocks import READ_BY, SINCE, Block, Epsilon, Number

# Who reads keys of the rule.
_PAPERS_WEIGHTS: list[JsonValue] = ["privacy.mechanism: weights", "privacy.calibration: paper"]
Caught = Annotated[int, Number, Field(ge=0, le=10_000_000)] | None


class ExposuresConfig(Block):
    """How many messages somebody outside catches, for G's rule (G Sec. 3.2; weights)."""

    uplinks: Caught = Field(
        default=None,
        description="t_1, a device's uploads; null = each of the schedule, here and below.",
    )
    downlinks: Caught = Field(
        default=None, description="t_2, an edge server's broadcasts after local aggregations."
    )
    cloud_rounds: Caught = Field(
        default=None, description="t_3, of the `uplinks` those of global aggregations."
    )
    edge_uplinks: Caught = Field(
        default=None, description="t_4, an edge server's messages to the cloud."
    )
    cloud_downlinks: Caught = Field(default=None, description="t_5, the cloud's broadcasts.")


class PaperPrivacy(Block):
    """What the target is against those outside, and what of it they catch."""

    epsilon_cloud: Epsilon | None = Field(
        default=None,
        description="epsilon_2 of G's rule, for what passes the cloud (weights, calibration: "
        "paper); null = epsilon.",
        json_schema_extra={SINCE: "0.5.0", READ_BY: _PAPERS_WEIGHTS},
    )
    exposures: ExposuresConfig = Field(
        default=ExposuresConfig(),
        json_schema_extra={SINCE: "0.5.0", READ_BY: "privacy.mechanism: weights"},
    )
    downlink: Literal["top_up", "full", "none"] = Field(
        default="top_up",
        description="What servers and cloud add to broadcasts under G's rule (weights, "
        "calibration: paper): what uploads lack (top_up, G eqs 4.10, 4.11), all of it, or none.",
        json_schema_extra={SINCE: "0.5.0", READ_BY: _PAPERS_WEIGHTS},
    )
