"""A member's side of one round: four messages, each once (Bonawitz et al. 2017, Fig. 4)."""

from collections.abc import Callable, Iterable

from m2fdp.secure_aggregation import encoding, keys, masks, shares
from m2fdp.secure_aggregation.failures import (
    InputRefused,
    KeyRefused,
    OutOfTurn,
    TamperedShare,
    UnmaskRefused,
)
from m2fdp.secure_aggregation.messages import (
    Mailbox,
    MaskedVector,
    PublicKeys,
    Roster,
    SealedShares,
    UnmaskRequest,
    UnmaskShares,
)
from m2fdp.secure_aggregation.terms import Input, Stage, Terms


class Member:
    """One member of a group in one round. Its keys are made for the round and end with it.

    A step that raises is its last: whatever else it is asked for, it refuses. A step that is asked
    for again, or too early, is `OutOfTurn`; one of too few members is `BelowThreshold`.

    Args:
        number: 0…n-1.
        entropy: so many random bytes that nobody can foresee.
    """

    def __init__(self, terms: Terms, number: int, entropy: Callable[[int], bytes]) -> None:
        self.number = number
        self.terms = terms
        self._entropy = entropy
        self._next: Stage | None = Stage.KEYS
        self._sealing = keys.key_pair(entropy(keys.KEY_BYTES))
        self._masking = keys.key_pair(entropy(keys.KEY_BYTES))
        self._own_seed = entropy(shares.SECRET_BYTES)
        self._roster: dict[int, PublicKeys] = {}
        self._sealing_keys: dict[int, bytes] = {}
        # By whose it is: shares of the seed of an own mask, and of a private masking key.
        self._held: dict[int, tuple[bytes, bytes]] = {}

    def announce(self) -> PublicKeys:
        """Its public keys."""
        self._turn(Stage.KEYS)
        self._next = Stage.SHARES
        return PublicKeys(self.number, self._sealing.public, self._masking.public)

    def share(self, roster: Roster) -> SealedShares:
        """Shares of the two secrets that can take its masks away, for the others of the roster. A
        key of low order or that two show, or not its own beside its number, is a `KeyRefused`."""
        self._turn(Stage.SHARES)
        self._read(roster)
        others = self._others(self._roster)
        for other in others:
            secret = keys.agree(self._sealing, self._roster[other].sealing, other)
            self._sealing_keys[other] = keys.derive(secret, "share", self.terms)
        held = shares.split(
            (self._own_seed, self._masking.secret()),
            self.terms.group.threshold,
            [point(member) for member in self._roster],
            self._entropy,
        )
        by_member = dict(zip(self._roster, held, strict=True))
        self._held[self.number] = (by_member[self.number][0], by_member[self.number][1])
        self._next = Stage.VECTOR
        sealed = (
            (v, keys.seal(self._sealing_keys[v], self.number, v, b"".join(by_member[v])))
            for v in others
        )
        return SealedShares(tuple(sealed), self.number)

    def receive(self, mailbox: Mailbox) -> None:
        """What the others have sealed for it. By itself it is for a member that has masked its
        vector before and is rebuilt from the same entropy: it masks nothing any more."""
        self._turn(Stage.VECTOR)
        for sender, sealed in mailbox.parcels:
            if sender not in self._sealing_keys:
                raise TamperedShare(sender, self.number)
            text = keys.unseal(self._sealing_keys[sender], sender, self.number, sealed)
            self._held[sender] = (text[: shares.SHARE_BYTES], text[shares.SHARE_BYTES :])
        self.terms.group.require(len(self._held))
        self._next = Stage.UNMASKING

    def mask(self, mailbox: Mailbox, entry: Input) -> MaskedVector:
        """Its vector and noise under its own mask and one for each other who has shared; once, for
        two vectors under one mask show their difference. A parcel that is not what its sender
        sealed is a `TamperedShare`, an input of `encoding.refusal` an `InputRefused`."""
        self.receive(mailbox)
        self._next = None
        reason = encoding.refusal(entry, self.terms)
        if reason is not None:
            raise InputRefused(self.number, reason)
        words = encoding.encode(entry, self.terms)
        masks.add_own_mask(words, masks.own_key(self._own_seed, self.terms))
        for other in self._others(self._held):
            public = self._roster[other].masking
            key = masks.pair_key(self._masking, public, other, self.terms)
            masks.add_pair_mask(words, key, self.number, other)
        self._next = Stage.UNMASKING
        return MaskedVector(self.number, words)

    def unmask(self, request: UnmaskRequest) -> UnmaskShares:
        """For each survivor its share of the own mask, for each silent one of the masking key. It
        refuses (`UnmaskRefused`) a second time or too early; both shares of one member; a sum of
        too few, or without its own vector; and others than those who have shared."""
        if self._next is not Stage.UNMASKING:
            raise UnmaskRefused(self.number, "it does so once, after its vector")
        self._next = None
        self.check(request)
        return UnmaskShares(
            self.number,
            {member: self._held[member][0] for member in sorted(request.survivors)},
            {member: self._held[member][1] for member in sorted(request.silent)},
        )

    def check(self, request: UnmaskRequest) -> None:
        """Refuse as `unmask` does; whoever sees less than the other members can't find more."""
        survivors, silent = set(request.survivors), set(request.silent)
        if survivors & silent:
            raise UnmaskRefused(self.number, "both shares of one member would show its vector")
        if survivors | silent != set(self._held):
            raise UnmaskRefused(self.number, "not those who have shared")
        if self.number not in survivors:
            raise UnmaskRefused(self.number, "it is said to have fallen silent")
        if len(survivors) < self.terms.group.threshold:
            raise UnmaskRefused(self.number, "a sum of too few")

    def _turn(self, stage: Stage) -> None:
        if self._next is not stage:
            raise OutOfTurn(f"member {self.number} is not at its message {stage.name.lower()}")
        self._next = None

    def _read(self, roster: Roster) -> None:
        self._roster = {one.sender: one for one in roster.keys}
        self.terms.group.require(len(self._roster))
        on_roster = self._roster.get(self.number)
        if on_roster != PublicKeys(self.number, self._sealing.public, self._masking.public):
            raise KeyRefused(self.number, "not its own on the roster")
        copied = keys.copied({u: (one.sealing, one.masking) for u, one in self._roster.items()})
        if copied:
            raise KeyRefused(copied[0], keys.COPIED)

    def _others(self, members: Iterable[int]) -> list[int]:
        return [member for member in members if member != self.number]


def point(member: int) -> int:
    """Where the polynomials of shares are taken for a member; zero is the secret's own."""
    return member + 1
