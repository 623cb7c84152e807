"""Blocks of the promise: the mechanism, against whom it holds, and how it is tested."""

from typing import Annotated, Literal

from pydantic import Field

from m2fdp.core.blocks import (
    READ_BY,
    SINCE,
    Block,
    Epsilon,
    Extensible,
    FromText,
    Number,
    Positive,
    extended,
    one_of,
)
from m2fdp.core.own_code import FORM

# Who reads the factor of the papers' noise.
_PAPERS_NOISE = "privacy.calibration: paper | control.gap: papers | the pipeline bound"


@extended("privacy")
class PrivacyConfig(Extensible):
    """The mechanism, its calibration and the target (J Sec. III-C).

    Which of them go together is a mechanism's affair: `m2fdp.core.privacy.mechanisms`.
    """

    mechanism: Annotated[str, *one_of("gradient", "upload", "weights")] = Field(
        default="gradient",
        description="Where noise is added: at every local step (gradient), to uploaded models "
        "(upload, the papers'), to models that are clipped themselves (weights, G's), or by a "
        f"{FORM} of your own.",
    )
    calibration: Literal["accountant", "paper", "multiplier"] = Field(
        default="accountant",
        description="accountant: the least noise that meets epsilon. paper: J Prop. 1 (upload) or "
        "G's rule (weights). multiplier: whoever adds noise takes noise_multiplier times its "
        "sensitivity.",
    )
    noise_multiplier: Positive | None = Field(
        default=None,
        description="z, noise over sensitivity (calibration: multiplier, H Alg. 1).",
        json_schema_extra={SINCE: "0.3.0", READ_BY: "privacy.calibration: multiplier"},
    )
    alpha: Positive = Field(
        default=1.0,
        description="alpha_l of J Prop. 1, a factor of the papers' noise (calibration: paper).",
        json_schema_extra={READ_BY: _PAPERS_NOISE},
    )
    epsilon: Epsilon = Field(
        default=4.0, description="The target that every distrusted observer stays within."
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5,
        description="The target's delta, below one over the records of the largest shard.",
    )
    clipping_norm: Positive = Field(
        default=1.0,
        description="C of a record's gradient (gradient), G of a minibatch gradient (upload, J "
        "Assumption 2), S of a device's (unit: device), or C of a model (weights).",
    )
    clip: Literal["flat", "per_layer"] = Field(
        default="flat",
        description="How a device's update is clipped (unit: device): as a whole, or each of the "
        "model's n layers to clipping_norm / sqrt(n) (H Alg. 1).",
        json_schema_extra={SINCE: "0.3.0", READ_BY: "privacy.unit: device"},
    )
    adjacency: Literal["add_remove", "zero_out", "replace_one"] = Field(
        default="add_remove",
        description="How two neighbouring data sets differ; replace_one is for mechanism: gradient "
        "and unit: record, or mechanism: weights.",
    )
    unit: Literal["record", "device"] = Field(
        default="record",
        description="Whose presence is hidden: a record's, or a device's as a whole.",
    )
    budget: Epsilon | None = Field(
        default=None,
        description="Training ends before the round that would pass this verified epsilon; null = "
        "no such end.",
    )


class ThreatConfig(Block):
    """Who must not learn more than the target; everybody else is only reported."""

    file = "privacy"

    distrusted: Annotated[
        list[
            Literal[
                "servers", "cloud", "siblings", "cousins", "far_devices", "public", "super_nodes"
            ]
        ],
        FromText,
        Field(min_length=1),
    ] = Field(
        default=["servers", "cloud"],
        description="The observers that the target binds; far_devices are cousins too, and "
        "siblings and elected super_nodes are the same devices. The default binds those of servers "
        "and cloud that are not trusted; any other list must not name a trusted cloud.",
    )
    open_links: Annotated[list[Literal["uplinks", "downlinks"]], FromText] = Field(
        default=[], description="Links on which somebody listens."
    )
    colluding: Annotated[int, Number, Field(ge=0, le=10_000)] = Field(
        default=0,
        description="zeta: so many of those whose noise protects a device tell the observers what "
        "they drew; the worst ones.",
        json_schema_extra={SINCE: "0.3.0"},
    )
