"""Keys that only synthetic images read."""

from typing import Annotated

from pydantic import AfterValidator, Field

from m2fdp.core.blocks import Block, FromText, Number, key

_SYNTHETIC = "dataset.name: synthetic"


def _grey_or_coloured(shape: list[int]) -> list[int]:
    if shape[2] not in (1, 3):
        raise ValueError("the third number, of channels, must be 1 or 3")
    return shape


class SourceKeys(Block):
    """What synthetic images are like."""

    shape: Annotated[
        list[Annotated[int, Number, Field(ge=1, le=128)]],
        FromText,
        Field(min_length=3, max_length=3),
        AfterValidator(_grey_or_coloured),
    ] = key([28, 28, 1], since="0.11.0", read_by=_SYNTHETIC)
    """Height, width and channels (1 or 3) of synthetic images."""
    records: Annotated[int, Number, Field(ge=1, le=10**6)] = key(
        60_000, since="0.11.0", read_by=_SYNTHETIC
    )
    """Synthetic training records; there are a sixth as many test records."""
