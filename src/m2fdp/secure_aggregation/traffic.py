"""What members send in one round, in bytes; the driver counts the same ones as they are sent.

Each member's number in a message takes 4 bytes; the transport's own headers do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from m2fdp.secure_aggregation.messages import ID_BYTES
from m2fdp.secure_aggregation.shares import SHARE_BYTES

_PUBLIC_KEYS = 2 * 32
# Two shares and the tag of their seal.
_PARCEL = ID_BYTES + 2 * SHARE_BYTES + 16
_WORD = 4


@dataclass(frozen=True)
class Turnout:
    """How many members come how far in a round; none of the numbers is above the one before.

    Attributes:
        announced: those who send keys.
        listed: those who are then on the roster: their keys were not refused.
        shared: those who then send sealed shares.
        masked: those who then send their vector, which is in the sum.
        answered: those who then send shares that unmask the sum.
    """

    announced: int
    listed: int
    shared: int
    masked: int
    answered: int


def everybody(n_members: int) -> Turnout:
    """All come to the end."""
    return Turnout(*[n_members] * 5)


@dataclass(frozen=True)
class MemberBytes:
    """What one member sends, who comes to the end."""

    keys: int
    shares: int
    vector: int
    unmasking: int

    @property
    def overhead(self) -> int:
        """All but the masked vector, which is sent in place of a vector."""
        return self.keys + self.shares + self.unmasking


def member_bytes(turnout: Turnout, n_parameters: int) -> MemberBytes:
    """What each member sends that sends all four messages."""
    return MemberBytes(
        keys=_PUBLIC_KEYS,
        shares=(turnout.listed - 1) * _PARCEL,
        vector=_WORD * n_parameters,
        unmasking=turnout.shared * (ID_BYTES + SHARE_BYTES),
    )


def overhead_bits(n_members: int) -> int:
    """Bits that a member sends in one round besides its masked vector, all being there."""
    return 8 * member_bytes(everybody(n_members), 0).overhead
