"""The block of what models see of a record."""

from typing import Literal

from pydantic import Field

from m2fdp.core.blocks import NO_RESULT, READ_BY, SINCE, Block, Count, Name, NonNegative


class FeaturesConfig(Block):
    """What models see of a record: its pixels, or fixed features that no record has shaped."""

    marks = {SINCE: "0.4.0"}

    map: Literal["pixels", "scattering", "patches", "contrastive", "both", "all"] = Field(
        default="pixels",
        description="pixels; scattering, fixed wavelets; patches, answers to patches of public "
        "images; contrastive, a network that has learnt from public drawings; both of the first "
        "two; or all. All but pixels are projected to few numbers by statistics of public images, "
        "and have length one; contrastive and all take grey images.",
    )
    dimension: Count | None = Field(
        default=None,
        description="Features a record, d; null = 600 of each map, or all its coefficients.",
        json_schema_extra={READ_BY: "features.map"},
    )
    ridge: NonNegative = Field(
        default=1e-3,
        description="How little small public variances are blown up: what is added to each before "
        "it is divided out, as a share of the largest.",
        json_schema_extra={READ_BY: "features.map"},
    )
    weights: Literal["variance", "invariance"] = Field(
        default="variance",
        description="What axes are weighed by: variance, one over the root of the public variance; "
        "invariance, more where small deformations of public images move less as well.",
        json_schema_extra={SINCE: "0.5.0", READ_BY: "features.map"},
    )
    public: str = Field(
        default="photographs",
        description="What the map is fitted on: photographs (the two that scikit-learn bundles), "
        "shapes (random ones and lines on black, and crops of these), drawings (of more kinds, "
        "characters of fonts among them), dead_leaves (random discs), or a file .npz with images "
        "of the data set's size under x, none of them its own.",
        json_schema_extra={READ_BY: "features.map"},
    )
    folder: Name = Field(
        default="data/04_feature",
        min_length=1,
        description="Where computed features are kept; runs on the same records share them.",
        json_schema_extra={NO_RESULT: True},
    )
