"""What goes over the wire: values that don't change. What is secret stays out of their repr."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


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
