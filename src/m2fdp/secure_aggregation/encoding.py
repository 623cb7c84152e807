"""Vectors as fixed-point integers modulo 2^32, whose sums are exact.

With f of `Scale.points`, a member that adds noise z to its vector x sends rint(f (x + z)). Rounding
comes after its noise and reads nothing but x + z, so what a record moves x by does not grow: the
message is what it would be without a grid, processed further.

A member without noise sends trunc(f x): towards zero, so that no norm grows. What x moves by does:
by up to a point in each of the m coordinates that differ, however little,

    |T(x) - T(x')|_2 < |x - x'|_2 + sqrt(m)/f,    T(x) = trunc(f x)/f,

and nearly attained, x on the grid and x' a hair nearer to zero. So much more is moved where the
noise that protects the vector is not its own: that of others in the sum, or added to it later. It
also bounds what a message with given noise moves by. On average over its own noise, of deviation
s > 1/f, that is |x - x'|, but for a share of about exp(-(pi f s)^2): the sum of members that share
noise is then, looked at on the grid, the sum of all x + z with uniforms on [-1/2f, 1/2f].

Negative integers are two's complements.
"""

import numpy as np

from m2fdp.secure_aggregation.terms import Input, Terms

_LOUDEST = 8  # deviations; a Gaussian coordinate is louder with probability 1.2e-15


def refusal(entry: Input, terms: Terms) -> str | None:
    """Why a member must not mask this; None = it may. No reason tells a value."""
    n_parameters, scale = terms.n_parameters, terms.scale
    vector = np.asarray(entry.vector, dtype=np.float64)
    if vector.shape != (n_parameters,):
        return f"its shape is {vector.shape}, not ({n_parameters},)"
    if not np.isfinite(vector).all():
        return "it is not finite"
    if entry.noise is None:
        return None
    noise = np.asarray(entry.noise, dtype=np.float64)
    if noise.shape != (n_parameters,):
        return f"its noise has the shape {noise.shape}, not ({n_parameters},)"
    # NaN is not below anything.
    if not (np.abs(noise) <= _LOUDEST * scale.deviation).all():
        return f"its noise is beyond {_LOUDEST} deviations"
    return None


def encode(entry: Input, terms: Terms) -> np.ndarray:
    """The integers of an input that `refusal` lets pass: uint32 (M,)."""
    points, room = terms.points, (2**31 - 1) // terms.group.n_members
    vector = _within(np.asarray(entry.vector, dtype=np.float64), terms.scale.bound)
    if entry.noise is None:
        room = int(points * terms.scale.bound)
        grid = truncated(vector, points)
    else:
        grid = np.rint((vector + np.asarray(entry.noise, dtype=np.float64)) * points)
    np.clip(grid, -room, room, out=grid)
    return grid.astype(np.int64).astype(np.uint32)


def _within(vector: np.ndarray, bound: float) -> np.ndarray:
    """A vector, shortened to the bound where it is longer: the nearest in the ball, so that no two
    are moved apart.

    A device bounds a norm in its own arithmetic, often of 32 bits, and passes it by a hair. Were it
    left out for that, whether it is in the sum would tell of its records, before any noise.
    """
    with np.errstate(over="ignore"):
        length = np.linalg.norm(vector)
    return vector if length <= bound else vector * (bound / length)


def truncated(vector: np.ndarray, points: int) -> np.ndarray:
    """The last points of the grid on the way from zero: whole numbers, float64 (M,)."""
    return np.trunc(vector * points)


def decode(words: np.ndarray, points: int) -> np.ndarray:
    """The sum of what was encoded: float64 (M,)."""
    return words.view(np.int32) / float(points)
