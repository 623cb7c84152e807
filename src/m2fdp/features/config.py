"""The block of what models see of a record."""

from typing import Annotated, Literal

from pydantic import Field

from m2fdp.core.blocks import SINCE, Block, Count, Name, NonNegative, key


class FeaturesConfig(Block):
    """What models see of a record: its pixels, or fixed features that no record has shaped."""

    marks = {SINCE: "0.4.0"}

    map: Literal["pixels", "scattering", "patches", "contrastive", "both", "all"] = "pixels"
    """pixels; scattering, fixed wavelets; patches, answers to patches of public images;
    contrastive, a network that has learnt from public drawings; both of the first two; or all. All
    but pixels are projected to few numbers by statistics of public images, and have length one;
    contrastive and all take grey images."""
    dimension: Count | None = key(None, read_by="features.map")
    """Features a record, d; null = 600 of each map, or all its coefficients."""
    ridge: NonNegative = key(1e-3, read_by="features.map")
    """How little small public variances are blown up: what is added to each before it is divided
    out, as a share of the largest."""
    weights: Literal["variance", "invariance"] = key(
        "variance", since="0.5.0", read_by="features.map"
    )
    """What axes are weighed by: variance, one over the root of the public variance; invariance,
    more where small deformations of public images move less as well."""
    public: str = key("photographs", read_by="features.map")
    """What the map is fitted on: photographs (the two that scikit-learn bundles), shapes (random
    ones and lines on black, and crops of these), drawings (of more kinds, characters of fonts among
    them), dead_leaves (random discs), or a file .npz with images of the data set's size under x,
    none of them its own."""
    folder: Annotated[Name, Field(min_length=1)] = key("data/04_feature", no_result=True)
    """Where computed features are kept; runs on the same records share them."""
