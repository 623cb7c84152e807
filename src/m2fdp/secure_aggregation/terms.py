"""What all parties of one round know before it begins, and the grid that vectors are put on.

Vectors are sent as fixed-point integers modulo 2^32, negative ones as two's complements, so that
their sums are exact. With f of `Scale.points`, a member that adds noise z to its vector x sends
rint(f (x + z)). Rounding comes after its noise and reads nothing but x + z, so what a record moves
x by does not grow: the message is what it would be without a grid, processed further.

A member without noise sends trunc(f x): towards zero, so that no norm grows. What x moves by does:
by up to a point in each of the m coordinates that differ, however little,

    |T(x) - T(x')|_2 < |x - x'|_2 + sqrt(m)/f,    T(x) = trunc(f x)/f,

and nearly attained, x on the grid and x' a hair nearer to zero. So much more is moved where the
noise that protects the vector is not its own: that of others in the sum, or added to it later. It
also bounds what a message with given noise moves by. With own noise of deviation s > 1/f, a message
moves by |x - x'| on average, up to a share of about exp(-(pi f s)^2). Members that share noise then
have a sum that is, on the grid, the sum of all x + z with uniforms on [-1/2f, 1/2f].
"""

from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from math import inf

import numpy as np

from m2fdp.core.errors import InputError
from m2fdp.secure_aggregation.messages import BelowThreshold

# The grid of masked sums, over the deviation of their noise.
LARGEST_GRID = 1e-3
_LEAST_POINTS = 2**8
_LEAST_REACH = 1e-200
_LOUDEST = 8  # deviations; a Gaussian coordinate is louder with probability 1.2e-15


class Stage(IntEnum):
    """The four messages of a member, in their order."""

    KEYS = 0
    SHARES = 1
    VECTOR = 2
    UNMASKING = 3


@dataclass(frozen=True)
class Group:
    """Members 0…n-1, of whose vectors only the sum is shown.

    No other group of the same round has its name. t, n/2 < t <= n, are the fewest members whose sum
    is read. As many of them who collude with the server read everything.
    """

    name: str
    n_members: int
    threshold: int

    def __post_init__(self) -> None:
        n, t = self.n_members, self.threshold
        if n < 2:
            problem = f"adds up {n} message, which hides nothing: 2 are the fewest"
            raise InputError("secure_aggregation.layers", self.name, problem)
        if not n < 2 * t <= 2 * n:
            senders = f"the {n} senders of {self.name}: two halves could each be read"
            problem = f"must be from {n // 2 + 1} to {n} for {senders}"
            raise InputError("secure_aggregation.threshold", t, problem)

    def require(self, alive: int) -> None:
        """`BelowThreshold` where they are fewer than t."""
        if alive < self.threshold:
            raise BelowThreshold(self.name, alive, self.threshold)


@dataclass(frozen=True)
class Scale:
    """How large a member's vector and noise can be: S, the bound of its L2 norm, and the standard
    deviation of the loudest member's noise, in each coordinate."""

    bound: float
    deviation: float

    def points(self, n_members: int) -> int:
        """f = floor((2^31 - 1) / (n (bound + 8 deviation))), how many points of the grid a unit
        has: no sum of n members leaves the 32 bits."""
        bound, deviation = self.bound, self.deviation
        reach = n_members * (bound + _LOUDEST * deviation)
        refuse = partial(InputError, "secure_aggregation.protocol", "masks")
        # No number, none at all, or so small that its grid is none.
        if not (bound >= 0 and deviation >= 0 and _LEAST_REACH < reach < inf):
            raise refuse(
                f"needs vectors of a bounded norm, not {bound:g} with noise {deviation:g}: "
                "privacy.clipping_norm, or protocol: ideal"
            )
        points = int((2**31 - 1) / reach)
        if points < _LEAST_POINTS:
            raise refuse(
                f"leaves {points} grid points a unit to {n_members} members of norm {bound:g} and "
                f"noise {deviation:g}, where {_LEAST_POINTS} are needed: a smaller "
                "privacy.clipping_norm, smaller groups, or protocol: ideal"
            )
        return points


@dataclass(frozen=True)
class Terms:
    """One round of one group, of vectors of M numbers. Its label names run, round, local step and
    layer: no two rounds of a group share it, and all that is derived of keys is bound to it."""

    group: Group
    scale: Scale
    n_parameters: int
    label: str
    points: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", self.scale.points(self.group.n_members))


@dataclass(frozen=True, eq=False)
class Input:
    """What one member puts in: floats (M,) of norm at most S, and its noise, if it draws any."""

    vector: np.ndarray = field(repr=False)
    noise: np.ndarray | None = field(default=None, repr=False)


def refusal(entry: Input, terms: Terms) -> str | None:
    """Why a member must not mask this; None = it may. No reason tells a value."""
    shape = (terms.n_parameters,)
    vector = np.asarray(entry.vector, dtype=np.float64)
    if vector.shape != shape:
        return f"its shape is {vector.shape}, not {shape}"
    if not np.isfinite(vector).all():
        return "it is not finite"
    if entry.noise is None:
        return None
    noise = np.asarray(entry.noise, dtype=np.float64)
    if noise.shape != shape:
        return f"its noise has the shape {noise.shape}, not {shape}"
    # NaN is not below anything.
    if not (np.abs(noise) <= _LOUDEST * terms.scale.deviation).all():
        return f"its noise is beyond {_LOUDEST} deviations"
    return None


def encode(entry: Input, terms: Terms) -> np.ndarray:
    """The integers of an input that `refusal` lets pass: uint32 (M,).

    A vector beyond the bound is shortened to it: to the nearest in the ball, so that no two are
    moved apart. A device bounds a norm in its own arithmetic, often of 32 bits, and passes it by a
    hair. Were it left out for that, whether it is in the sum would tell of its records.
    """
    points, bound, room = terms.points, terms.scale.bound, (2**31 - 1) // terms.group.n_members
    vector = np.asarray(entry.vector, dtype=np.float64)
    with np.errstate(over="ignore"):
        length = np.linalg.norm(vector)
    if length > bound:
        vector = vector * (bound / length)
    if entry.noise is None:
        room = int(points * bound)
        grid = truncated(vector, points)
    else:
        grid = np.rint((vector + np.asarray(entry.noise, dtype=np.float64)) * points)
    return np.clip(grid, -room, room).astype(np.int64).astype(np.uint32)


def truncated(vector: np.ndarray, points: int) -> np.ndarray:
    """The last points of the grid on the way from zero: whole numbers, float64 (M,)."""
    return np.trunc(vector * points)


def decode(words: np.ndarray, points: int) -> np.ndarray:
    """The sum of what was encoded: float64 (M,)."""
    return words.view(np.int32) / float(points)
