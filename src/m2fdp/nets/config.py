"""Keys of residual networks."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from m2fdp.core.blocks import Block, Number, key

_RESNET = "model.name: resnet"


def _depth(depth: int) -> int:
    if depth % 18 != 2:
        raise ValueError("valid: 18 b + 2 layers, such as 20, 38, 56 and 110")
    return depth


class ResnetKeys(Block):
    """What a residual network is like."""

    depth: Annotated[int, Number, Field(ge=20, le=1010), AfterValidator(_depth)] = key(
        20, since="0.5.0", read_by=_RESNET
    )
    """Layers of resnet: 18 b + 2, such as D's 56 and 110."""
    width: Annotated[int, Number, Field(ge=1, le=1024)] = key(16, since="0.5.0", read_by=_RESNET)
    """Channels of resnet's first module; D's is 16."""
    norm: Literal["batch", "group"] = key("batch", since="0.5.0", read_by=_RESNET)
    """How resnet normalises: over the batch (D's algorithms only, without privacy), or over groups
    of a record's own channels."""
    stem_stride: Annotated[int, Number, Field(ge=1, le=2)] = key(1, since="0.5.0", read_by=_RESNET)
    """Of resnet's first convolution: 1 (D), or 2, which quarters all maps."""
