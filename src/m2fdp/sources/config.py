"""Keys that only some data sets read."""

import warnings
from typing import Annotated

from pydantic import AfterValidator, Field

from m2fdp.core.blocks import Block, FromText, Name, Number, key

_SYNTHETIC = "dataset.name: synthetic"


def _grey_or_coloured(shape: list[int]) -> list[int]:
    if shape[2] not in (1, 3):
        raise ValueError("the third number, of channels, must be 1 or 3")
    return shape


# pydantic's models had a method of that name once.
warnings.filterwarnings("ignore", message='Field name "schema"', category=UserWarning)


class SourceKeys(Block):
    """What synthetic images are like, and what a table may hold."""

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
    schema: Name | None = key(None, since="0.22.0", read_by="dataset.name: table")  # type: ignore[assignment]
    """The file that says what may stand in the table, docs/own-data.md; `m2fdp data describe TABLE`
    writes it."""
