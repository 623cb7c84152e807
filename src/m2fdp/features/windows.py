"""Means of a map over the cells of a grid, by windows that reach into the cells beside.

What moves by half a cell in the image then changes its features little, which costs no resolution:
classifiers behind much noise gain most.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


@cache
def windows(size: int, cells: int) -> Tensor:
    """The weights of a line of pixels in each of its cells: float64 (cells, size), rows sum to one.

    Gaussians around the middles of the cells, whose deviation is half a cell; what would lie
    outside the line counts nowhere.
    """
    side = size / cells
    pixels, middles = torch.arange(size) + 0.5, (torch.arange(cells) + 0.5) * side
    distances = (pixels.double() - middles.double()[:, None]) / (side / 2)
    return (-distances.square() / 2).softmax(dim=1)


def averaged(maps: Tensor, cells: tuple[int, int]) -> Tensor:
    """Maps (..., H, W) to their means over windows, (..., *cells)."""
    by_row, by_column = (
        windows(size, count) for size, count in zip(maps.shape[-2:], cells, strict=True)
    )
    # One product for both sides: two small ones take longer.
    weights = torch.kron(by_row, by_column).to(maps)
    return (maps.flatten(-2) @ weights.T).unflatten(-1, cells)
