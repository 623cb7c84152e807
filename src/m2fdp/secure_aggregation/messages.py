"""What goes over the wire, and its size: values that don't change.

Sizes are of what is sent, with 4 bytes for each member's number in it; the transport's own headers
do not count. What is secret stays out of a message's repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

ID_BYTES = 4


@dataclass(frozen=True)
class PublicKeys:
    """Member to server: a key that shares are sealed by, and one that masks are made by."""

    sender: int
    sealing: bytes
    masking: bytes

    @property
    def n_bytes(self) -> int:
        """Two keys."""
        return len(self.sealing) + len(self.masking)


@dataclass(frozen=True)
class Roster:
    """Server to each member: the keys of all who take part."""

    keys: tuple[PublicKeys, ...]

    @property
    def n_bytes(self) -> int:
        """Keys and whose they are."""
        return sum(ID_BYTES + keys.n_bytes for keys in self.keys)


@dataclass(frozen=True)
class _Parcels:
    parcels: tuple[tuple[int, bytes], ...]

    @property
    def n_bytes(self) -> int:
        """All parcels and whose they are."""
        return sum(ID_BYTES + len(sealed) for _, sealed in self.parcels)


@dataclass(frozen=True)
class SealedShares(_Parcels):
    """Member to server: (recipient, shares of its two secrets) for each other member."""

    sender: int


@dataclass(frozen=True)
class Mailbox(_Parcels):
    """Server to member: (sender, sealed shares) of each other member who has sent some."""

    recipient: int


@dataclass(frozen=True, eq=False)
class MaskedVector:
    """Member to server: uniform words, uint32 (M,)."""

    sender: int
    words: np.ndarray = field(repr=False)

    @property
    def n_bytes(self) -> int:
        """Four bytes a parameter."""
        return self.words.nbytes


@dataclass(frozen=True)
class UnmaskRequest:
    """Server to each survivor: whose vectors the sum has, and who fell silent after sharing."""

    survivors: tuple[int, ...]
    silent: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Members' numbers."""
        return ID_BYTES * (len(self.survivors) + len(self.silent))


@dataclass(frozen=True)
class UnmaskShares:
    """Survivor to server: its shares, by member, of the seeds of the survivors' own masks, and of
    the private keys of those who fell silent."""

    sender: int
    own_masks: Mapping[int, bytes] = field(repr=False)
    masking_keys: Mapping[int, bytes] = field(repr=False)

    @property
    def n_bytes(self) -> int:
        """All shares and whose they are."""
        held = (*self.own_masks.values(), *self.masking_keys.values())
        return sum(ID_BYTES + len(share) for share in held)


Message = PublicKeys | Roster | SealedShares | Mailbox | MaskedVector | UnmaskRequest | UnmaskShares
