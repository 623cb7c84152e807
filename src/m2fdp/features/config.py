"""The block of what models see of a record."""

from typing import Annotated, Literal

from pydantic import Field

from m2fdp.core.blocks import SINCE, Block, Count, Name, NonNegative, key


class FeaturesConfig(Block):
    """What models see of a record: its pixels, or fixed features, fitted on public images."""

    marks = {SINCE: "0.4.0"}

    map: Literal["pixels", "scattering", "patches", "contrastive", "both", "all"] = "pixels"
    """pixels; or fixed features: scattering (wavelets), patches (answers to public patches),
    contrastive (a network that has learnt from drawings), both of the first two, or all.
    contrastive and all take grey images."""
    dimension: Count | None = key(None, read_by="features.map")
    """Features a record, d; null = 600 of each map, or all its coefficients."""
    ridge: NonNegative = key(1e-3, read_by="features.map")
    """What is added to each public variance before it is divided out, as a share of the
    largest."""
    weights: Literal["variance", "invariance"] = key(
        "variance", since="0.5.0", read_by="features.map"
    )
    """What axes are weighed by: the public variance (variance), or also by how little
    deformations move them (invariance)."""
    public: str = key("photographs", read_by="features.map")
    """What the map is fitted on: leaves (random pictures by a program), drawings (a program's too,
    filled with leaves), photographs (two that scikit-learn bundles), or a file .npz with images
    under x, none of them the data set's own."""
    folder: Annotated[Name, Field(min_length=1)] = key("data/04_feature", no_result=True)
    """Where computed features are kept; runs on the same records share them."""
