# ruff: noqa: N818 (failures are named as the events that they are)
"""What goes over the wire, and how a round can end without a sum, or without a member.

No repr and no text shows a value of a vector, a sum or a share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from m2fdp.core.errors import InputError


@dataclass(frozen=True)
class PublicKeys:
    """Member to server: a key that shares are sealed by, and one that masks are made by."""

    sender: int
    sealing: bytes
    masking: bytes


@dataclass(frozen=True)
class Roster:
    """Server to each member: the keys of all who take part."""

    keys: tuple[PublicKeys, ...]


@dataclass(frozen=True)
class SealedShares:
    """Member to server: (recipient, shares of its two secrets) for each other member."""

    parcels: tuple[tuple[int, bytes], ...]
    sender: int


@dataclass(frozen=True)
class Mailbox:
    """Server to member: (sender, sealed shares) of each other member who has sent some."""

    parcels: tuple[tuple[int, bytes], ...]
    recipient: int


@dataclass(frozen=True, eq=False)
class MaskedVector:
    """Member to server: uniform words, uint32 (M,)."""

    sender: int
    words: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class UnmaskRequest:
    """Server to each survivor: whose vectors the sum has, and who fell silent after sharing."""

    survivors: tuple[int, ...]
    silent: tuple[int, ...]


@dataclass(frozen=True)
class UnmaskShares:
    """Survivor to server: its shares, by member, of the seeds of the survivors' own masks, and of
    the private keys of those who fell silent."""

    sender: int
    own_masks: Mapping[int, bytes] = field(repr=False)
    masking_keys: Mapping[int, bytes] = field(repr=False)


Message = PublicKeys | Roster | SealedShares | Mailbox | MaskedVector | UnmaskRequest | UnmaskShares


class BelowThreshold(InputError):
    """Fewer members of a group are left than t: the round has no sum, not even a partial one."""

    def __init__(self, group: str, alive: int, threshold: int) -> None:
        self.group, self.alive, self.threshold = group, alive, threshold
        remedy = "a lower threshold (above half of them), fewer dropouts"
        problem = f"{alive} senders are left in {group}: {remedy}"
        super().__init__("secure_aggregation.threshold", threshold, problem)


class ProtocolError(Exception):
    """Somebody does not do what the protocol says."""


class _OfMember(ProtocolError):
    what = "member {}"

    def __init__(self, member: int, reason: str) -> None:
        self.member, self.reason = member, reason
        super().__init__(f"{self.what.format(member)}: {reason}")


class KeyRefused(_OfMember):
    """A public key that no honest member has: somebody else's too, or one of low order."""

    what = "the keys of member {}"


class InputRefused(_OfMember):
    """A member does not mask what it has; to the others it falls silent."""

    what = "the input of member {}"


class MessageRefused(_OfMember):
    """A message that the server did not ask for, has already, or that is malformed: the round
    ends."""

    what = "the message of member {}"


class UnmaskRefused(_OfMember):
    """A member gives no shares: the request would show more than one sum of enough members."""

    what = "member {} unmasks nothing"


class TamperedShare(ProtocolError):
    """A sealed share is not what its sender sealed: the round ends."""

    def __init__(self, sender: int, recipient: int) -> None:
        self.sender, self.recipient = sender, recipient
        super().__init__(f"the share that member {sender} sealed for member {recipient}")


class OutOfTurn(ProtocolError):
    """A party is asked for a step that it has done, or not come to; keys and masks serve once."""


class SharesDisagree(ProtocolError):
    """The shares of one secret are not of one polynomial, or not of that secret."""
