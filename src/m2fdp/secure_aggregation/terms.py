"""What all parties of one round know before it begins."""

from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from math import inf

import numpy as np

from m2fdp.core.errors import InputError
from m2fdp.secure_aggregation.failures import BelowThreshold

# The grid of masked sums, over the deviation of their noise.
LARGEST_GRID = 1e-3
_LEAST_POINTS = 2**8
_LEAST_REACH = 1e-200


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
        if self.n_members < 2:
            problem = f"adds up {self.n_members} message, which hides nothing: 2 are the fewest"
            raise InputError("secure_aggregation.layers", self.name, problem)
        if not self.n_members < 2 * self.threshold <= 2 * self.n_members:
            raise InputError(
                "secure_aggregation.threshold",
                self.threshold,
                f"must be from {self.n_members // 2 + 1} to {self.n_members} for the "
                f"{self.n_members} senders of {self.name}: two halves could each be read",
            )

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
        reach = n_members * (self.bound + 8 * self.deviation)
        refuse = partial(InputError, "secure_aggregation.protocol", "masks")
        # No number, none at all, or so small that its grid is none.
        if not (self.bound >= 0 and self.deviation >= 0 and _LEAST_REACH < reach < inf):
            raise refuse(
                f"needs vectors of a bounded norm, not {self.bound:g} with noise "
                f"{self.deviation:g}: privacy.clipping_norm, or protocol: ideal"
            )
        points = int((2**31 - 1) / reach)
        if points < _LEAST_POINTS:
            raise refuse(
                f"leaves {points} grid points a unit to {n_members} members of norm "
                f"{self.bound:g} and noise {self.deviation:g}, where {_LEAST_POINTS} are needed: "
                "a smaller privacy.clipping_norm, smaller groups, or protocol: ideal"
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
