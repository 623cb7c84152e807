"""Small deformations of an image, after which people still see the same thing."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from m2fdp.features.shapes import smooth_fields

# Each is drawn uniformly up to these, either way.
_ROTATION = np.pi / 18
_LOG_SCALE, _SHEAR = 0.12, 0.15
_LOG_CONTRAST = 0.2
# As shares of half a side: a shift, and the deviation of a smooth field of shifts.
_SHIFT, _BEND = 0.11, 0.05
# Of that field, in pixels of 28; see `smooth_fields`.
_BEND_LENGTHS = (2.5, 4.0)


def deformed(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Each image, float32 (n, C, H, W) in [0, 1], turned, scaled, sheared, shifted, bent and of
    another contrast, a little; what comes in from outside repeats the edge."""
    n, _, *size = images.shape

    def up_to(limit: float) -> np.ndarray:
        return rng.uniform(-limit, limit, n)

    angle, wide, high = up_to(_ROTATION), np.exp(up_to(_LOG_SCALE)), np.exp(up_to(_LOG_SCALE))
    rows = [
        [wide * np.cos(angle), -high * np.sin(angle) + up_to(_SHEAR), up_to(_SHIFT)],
        [wide * np.sin(angle), high * np.cos(angle), up_to(_SHIFT)],
    ]
    affine = torch.as_tensor(np.moveaxis(np.array(rows), 2, 0), dtype=torch.float32)
    grid = affine_grid(affine, list(images.shape), align_corners=False)
    bends = [_BEND * smooth_fields(n, size, _BEND_LENGTHS, rng) for _ in range(2)]
    grid += torch.as_tensor(np.stack(bends, axis=3), dtype=torch.float32)
    moved = grid_sample(images, grid, align_corners=False, padding_mode="border").clamp(0, 1)

    def factors(logarithms: np.ndarray) -> Tensor:
        return torch.as_tensor(np.exp(logarithms), dtype=torch.float32)[:, None, None, None]

    paler = factors(-np.abs(up_to(_LOG_CONTRAST)))
    return moved.pow(factors(up_to(_LOG_CONTRAST))) * paler
