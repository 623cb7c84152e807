"""Vectors as fixed-point integers modulo 2^32, whose sums are exact.

A coordinate x becomes trunc(f x), f of `Scale.points`: towards zero, so that no norm grows, and no
sensitivity with it (but for float64's last bit). Noise is added on the grid as rint(f noise), a
rounded Gaussian. Negative integers are two's complements.
"""

from __future__ import annotations

import numpy as np

from m2fdp.secure_aggregation.terms import SLACK, Input, Terms

_LOUDEST = 8  # deviations; a Gaussian coordinate is louder with probability 1.2e-15


def refusal(given: Input, terms: Terms) -> str | None:
    """Why a member must not mask this; None = it may. No reason tells a value."""
    n_parameters, scale = terms.n_parameters, terms.scale
    vector = np.asarray(given.vector, dtype=np.float64)
    if vector.shape != (n_parameters,):
        return f"its shape is {vector.shape}, not ({n_parameters},)"
    if not np.isfinite(vector).all():
        return "it is not finite"
    with np.errstate(over="ignore"):
        if np.linalg.norm(vector) > scale.bound * (1 + SLACK):
            return "its norm is above the bound"
    if given.noise is None:
        return None
    noise = np.asarray(given.noise, dtype=np.float64)
    if noise.shape != (n_parameters,):
        return f"its noise has the shape {noise.shape}, not ({n_parameters},)"
    # NaN is not below anything.
    if not (np.abs(noise) <= _LOUDEST * scale.deviation).all():
        return f"its noise is beyond {_LOUDEST} deviations"
    return None


def encode(given: Input, terms: Terms) -> np.ndarray:
    """The integers of an input that `refusal` lets pass: uint32 (M,)."""
    points = terms.points
    vector = np.asarray(given.vector, dtype=np.float64)
    # The slack of the bound must not use up the room of the sum.
    largest = int(points * terms.scale.bound)
    grid = np.clip(truncated(vector, points), -largest, largest)
    if given.noise is not None:
        grid += np.rint(np.asarray(given.noise, dtype=np.float64) * points)
        room = (2**31 - 1) // terms.group.n_members
        np.clip(grid, -room, room, out=grid)
    return grid.astype(np.int64).astype(np.uint32)


def truncated(vector: np.ndarray, points: int) -> np.ndarray:
    """The last points of the grid on the way from zero: whole numbers, float64 (M,)."""
    return np.trunc(vector * points)


def decode(words: np.ndarray, points: int) -> np.ndarray:
    """The sum of what was encoded: float64 (M,)."""
    return words.view(np.int32) / float(points)
