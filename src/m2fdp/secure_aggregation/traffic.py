"""What members send in one round, in bytes, where all come to the end.

Each member's number in a message takes 4 bytes; the transport's own headers do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from m2fdp.secure_aggregation.shares import SHARE_BYTES

ID_BYTES = 4
_PUBLIC_KEYS = 2 * 32
# Two shares and the tag of their seal.
_PARCEL = ID_BYTES + 2 * SHARE_BYTES + 16
_WORD = 4


@dataclass(frozen=True)
class MemberBytes:
    """What one member sends."""

    keys: int
    shares: int
    vector: int
    unmasking: int

    @property
    def overhead(self) -> int:
        """All but the masked vector, which is sent in place of a vector."""
        return self.keys + self.shares + self.unmasking


def member_bytes(n_members: int, n_parameters: int) -> MemberBytes:
    """What each of so many members sends."""
    return MemberBytes(
        keys=_PUBLIC_KEYS,
        shares=(n_members - 1) * _PARCEL,
        vector=_WORD * n_parameters,
        unmasking=n_members * (ID_BYTES + SHARE_BYTES),
    )


def overhead_bits(n_members: int) -> int:
    """Bits that a member sends in one round besides its masked vector."""
    return 8 * member_bytes(n_members, 0).overhead
