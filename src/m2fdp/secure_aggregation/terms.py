"""What all parties of one round know before it begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from math import inf

import numpy as np

from m2fdp.errors import InputError
from m2fdp.secure_aggregation.failures import BelowThreshold

_LEAST_POINTS = 2**8
_LEAST_REACH = 1e-200
# A device bounds a norm in its own arithmetic, often of 32 bits.
SLACK = 1e-6


class Stage(IntEnum):
    """The four messages of a member, in their order."""

    KEYS = 0
    SHARES = 1
    VECTOR = 2
    UNMASKING = 3


def default_threshold(n_members: int) -> int:
    """t = floor(2n/3) + 1 of n: a third may fall silent, and a third may collude."""
    return 2 * n_members // 3 + 1


def refuse_threshold(n_members: int, threshold: int, colluding: int = 0) -> None:
    """
    Args:
        colluding: zeta, members who pool what they know with the server.

    Raises:
        InputError: a group of one, whose sum is the message; t outside n/2 < t <= n, so that two
            sets of survivors could be unmasked; t <= zeta, so that the colluders rebuild all.
    """
    if n_members < 2:
        raise InputError(
            "secure_aggregation.layers",
            f"a group of {n_members}",
            "needs groups of at least 2 members: a sum of one is the message itself",
        )
    if not n_members < 2 * threshold <= 2 * n_members:
        raise InputError(
            "secure_aggregation.threshold",
            threshold,
            f"must be from {n_members // 2 + 1} to {n_members} in a group of {n_members}: above "
            "half of it, so that no two sets of survivors can be unmasked",
        )
    if threshold <= colluding:
        raise InputError(
            "secure_aggregation.threshold",
            threshold,
            f"must be above threat.colluding = {colluding}, who could rebuild every mask",
        )


@dataclass(frozen=True)
class Group:
    """Members 0…n-1, of whose vectors only the sum is shown.

    Attributes:
        name: no other group of the same round has it.
        n_members: n.
        threshold: t, the fewest members whose sum is read.

    Raises:
        InputError: see `refuse_threshold`.
    """

    name: str
    n_members: int
    threshold: int

    def __post_init__(self) -> None:
        refuse_threshold(self.n_members, self.threshold)

    def require(self, alive: int) -> None:
        """
        Raises:
            BelowThreshold: they are fewer than t.
        """
        if alive < self.threshold:
            raise BelowThreshold(self.name, alive, self.threshold)


@dataclass(frozen=True)
class Scale:
    """How large a member's vector and noise can be.

    Attributes:
        bound: S, of the vector's L2 norm.
        deviation: of each coordinate of the noise of one member, the loudest.
    """

    bound: float
    deviation: float

    def points(self, n_members: int) -> int:
        """f, how many points of the grid a unit has: no sum of n members leaves the 32 bits.

        f = floor((2^31 - 1) / (n (bound + 8 deviation))).

        Raises:
            InputError: fewer than 256, too coarse; or a scale that is none.
        """
        reach = n_members * (self.bound + 8 * self.deviation)
        # No number, none at all, or so small that its grid is none.
        if not (self.bound >= 0 and self.deviation >= 0 and _LEAST_REACH < reach < inf):
            raise InputError(
                "secure_aggregation.protocol",
                "masks",
                f"needs vectors of a bounded norm, not {self.bound:g} with noise "
                f"{self.deviation:g}: privacy.clipping_norm, or protocol: ideal",
            )
        points = int((2**31 - 1) / reach)
        if points < _LEAST_POINTS:
            raise InputError(
                "secure_aggregation.protocol",
                "masks",
                f"leaves {points} grid points a unit to {n_members} members of norm "
                f"{self.bound:g} and noise {self.deviation:g}, where {_LEAST_POINTS} are needed: "
                "a smaller privacy.clipping_norm, smaller groups, or protocol: ideal",
            )
        return points


@dataclass(frozen=True)
class Terms:
    """One round of one group.

    Attributes:
        group: who.
        scale: how large their vectors are.
        n_parameters: M.
        label: what names the round: no two rounds of a group share it. Run, round and local step.

    Raises:
        InputError: see `Scale.points`.
    """

    group: Group
    scale: Scale
    n_parameters: int
    label: str
    points: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", self.scale.points(self.group.n_members))


@dataclass(frozen=True, eq=False)
class Input:
    """What one member puts in.

    Attributes:
        vector: floats (M,) of norm at most S.
        noise: floats (M,), drawn by the member; None = it adds none.
    """

    vector: np.ndarray = field(repr=False)
    noise: np.ndarray | None = field(default=None, repr=False)
