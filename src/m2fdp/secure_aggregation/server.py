"""The server's side of one round: it passes on what it can't read, and reads the sum."""

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

import numpy as np

from m2fdp.secure_aggregation import encoding, keys, masks, shares
from m2fdp.secure_aggregation.failures import MessageRefused, SharesDisagree
from m2fdp.secure_aggregation.member import point
from m2fdp.secure_aggregation.messages import (
    Mailbox,
    MaskedVector,
    PublicKeys,
    Roster,
    SealedShares,
    UnmaskRequest,
    UnmaskShares,
)
from m2fdp.secure_aggregation.terms import Terms

_Sent = TypeVar("_Sent", PublicKeys, SealedShares, MaskedVector, UnmaskShares)


class Server:
    """Whoever adds a group's vectors in one round: a parent, the cloud, an elected device.

    Every message is of another member, of those who were asked for one; what is none, or of
    another form, is a `MessageRefused`. Where too few are left a step is `BelowThreshold`, and
    nothing of a sum has been read. `refused` says why each member's keys were, if they were.
    """

    def __init__(self, terms: Terms) -> None:
        self.refused: dict[int, str] = {}
        self._terms = terms
        self._keys: dict[int, PublicKeys] = {}
        self._shared: tuple[int, ...] = ()
        self._survivors: tuple[int, ...] = ()
        self._silent: tuple[int, ...] = ()
        self._words = np.zeros(terms.n_parameters, dtype=np.uint32)

    def roster(self, announced: Iterable[PublicKeys]) -> Roster:
        """The keys of those who take part; members with keys that are refused do not."""
        everybody = range(self._terms.group.n_members)
        public = {one.sender: one for one in _each(announced, everybody)}
        self.refused = keys.refused_keys(
            {member: (one.sealing, one.masking) for member, one in public.items()}
        )
        self._keys = {u: one for u, one in public.items() if u not in self.refused}
        self._terms.group.require(len(self._keys))
        return Roster(tuple(self._keys.values()))

    def mailboxes(self, sealed: Iterable[SealedShares]) -> tuple[Mailbox, ...]:
        """For each who has shared, what all the others of the roster have sealed for it."""
        parcels = {}
        for one in _each(sealed, self._keys):
            parcels[one.sender] = dict(one.parcels)
            if sorted((one.sender, *(v for v, _ in one.parcels))) != sorted(self._keys):
                raise MessageRefused(one.sender, "its shares are not one for each other member")
        self._shared = tuple(parcels)
        self._terms.group.require(len(parcels))
        return tuple(
            Mailbox(tuple((u, parcels[u][v]) for u in self._shared if u != v), v)
            for v in self._shared
        )

    def request(self, vectors: Iterable[MaskedVector]) -> UnmaskRequest:
        """Adds masked vectors, uint32 (M,), as they arrive, and asks for what takes masks away."""
        survivors = []
        for vector in _each(vectors, self._shared):
            words = vector.words
            # NumPy would add one word to all, and a second vector counts its member twice.
            if words.shape != self._words.shape or words.dtype != self._words.dtype:
                reason = f"its words are {words.dtype} {words.shape}, not uint32"
                raise MessageRefused(vector.sender, f"{reason} {self._words.shape}")
            self._words += words
            survivors.append(vector.sender)
        self._survivors = tuple(survivors)
        self._terms.group.require(len(survivors))
        self._silent = tuple(member for member in self._shared if member not in survivors)
        return UnmaskRequest(self._survivors, self._silent)

    def read(self, answers: Iterable[UnmaskShares]) -> np.ndarray:
        """The sum of the survivors' vectors and noise: float64 (M,). `SharesDisagree` where shares
        are not of what they should be."""
        answered = {}
        for one in _each(answers, self._survivors):
            answered[point(one.sender)] = one
            held = set(one.own_masks), set(one.masking_keys)
            if held != (set(self._survivors), set(self._silent)):
                raise MessageRefused(one.sender, "its shares are not of whom it was asked about")
        self._terms.group.require(len(answered))
        threshold = self._terms.group.threshold
        seeds = {x: one.own_masks for x, one in answered.items()}
        secrets = {x: one.masking_keys for x, one in answered.items()}
        words = self._words.copy()
        for seed in shares.rebuild_all(seeds, threshold).values():
            masks.take_own_mask(words, masks.own_key(seed, self._terms))
        for member, secret in shares.rebuild_all(secrets, threshold).items():
            self._add_missing(words, member, secret)
        return encoding.decode(words, self._terms.points)

    def _add_missing(self, words: np.ndarray, member: int, secret: bytes) -> None:
        """What a silent member would have added against the pair masks of the survivors."""
        pair = keys.key_pair(secret)
        if pair.public != self._keys[member].masking:
            raise SharesDisagree(f"shares that are not of the masking key of member {member}")
        for other in self._survivors:
            key = masks.pair_key(pair, self._keys[other].masking, other, self._terms)
            masks.add_pair_mask(words, key, member, other)


def _each(messages: Iterable[_Sent], senders: Collection[int]) -> Iterator[_Sent]:
    """The messages, each of another member of those who were asked."""
    waiting = set(senders)
    for one in messages:
        if one.sender not in waiting:
            reason = "a second one" if one.sender in senders else "nobody asked for it"
            raise MessageRefused(one.sender, reason)
        waiting.remove(one.sender)
        yield one
