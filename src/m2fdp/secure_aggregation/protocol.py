"""One round from the inputs to their sum: a member's side, the server's, and both played in turn
(Bonawitz et al. 2017, Fig. 4)."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from m2fdp.secure_aggregation import keys
from m2fdp.secure_aggregation.messages import (
    InputRefused,
    KeyRefused,
    Mailbox,
    MaskedVector,
    Message,
    MessageRefused,
    OutOfTurn,
    PublicKeys,
    Roster,
    SealedShares,
    SharesDisagree,
    TamperedShare,
    UnmaskRefused,
    UnmaskRequest,
    UnmaskShares,
)
from m2fdp.secure_aggregation.terms import Input, Stage, Terms, decode, encode, refusal

Tap = Callable[[Message], None]
_Sent = TypeVar("_Sent", bound=Message)
_Asked = TypeVar("_Asked", PublicKeys, SealedShares, MaskedVector, UnmaskShares)


def point(member: int) -> int:
    """Where the polynomials of shares are taken for a member; zero is the secret's own."""
    return member + 1


class Member:
    """One member of a group in one round: four messages, each once. Its keys end with the round.

    A step that raises is its last: whatever else it is asked for, it refuses. A step that is asked
    for again, or too early, is `OutOfTurn`; one of too few members is `BelowThreshold`.

    Args:
        number: 0…n-1.
        entropy: so many random bytes that nobody can foresee.
    """

    def __init__(self, terms: Terms, number: int, entropy: Callable[[int], bytes]) -> None:
        self.terms, self.number = terms, number
        self._entropy = entropy
        self._next: Stage | None = Stage.KEYS
        self._sealing = X25519PrivateKey.from_private_bytes(entropy(keys.KEY_BYTES))
        self._masking = X25519PrivateKey.from_private_bytes(entropy(keys.KEY_BYTES))
        self._own_seed = entropy(keys.KEY_BYTES)
        public = keys.public_of(self._sealing), keys.public_of(self._masking)
        self._public = PublicKeys(number, *public)
        self._roster: dict[int, PublicKeys] = {}
        self._sealing_keys: dict[int, bytes] = {}
        # By whose it is: shares of the seed of an own mask, and of a private masking key.
        self._held: dict[int, tuple[bytes, bytes]] = {}

    def announce(self) -> PublicKeys:
        """Its public keys."""
        self._turn(Stage.KEYS)
        self._next = Stage.SHARES
        return self._public

    def share(self, roster: Roster) -> SealedShares:
        """Shares of the two secrets that can take its masks away, for the others of the roster. A
        key of low order or that two show, or not its own beside its number, is a `KeyRefused`."""
        self._turn(Stage.SHARES)
        self._read(roster)
        secrets = self._own_seed, self._masking.private_bytes_raw()
        points = [point(member) for member in self._roster]
        held = keys.split(secrets, self.terms.group.threshold, points, self._entropy)
        parcels = []
        for (v, one), (of_seed, of_key) in zip(self._roster.items(), held, strict=True):
            if v == self.number:
                self._held[v] = of_seed, of_key
                continue
            key = keys.derive(keys.agree(self._sealing, one.sealing, v), "share", self.terms)
            self._sealing_keys[v] = key
            parcels.append((v, keys.seal(key, self.number, v, of_seed + of_key)))
        self._next = Stage.VECTOR
        return SealedShares(tuple(parcels), self.number)

    def receive(self, mailbox: Mailbox) -> None:
        """What the others have sealed for it. By itself it is for a member that has masked its
        vector before and is rebuilt from the same entropy: it masks nothing any more."""
        self._turn(Stage.VECTOR)
        for sender, sealed in mailbox.parcels:
            if sender not in self._sealing_keys:
                raise TamperedShare(sender, self.number)
            text = keys.unseal(self._sealing_keys[sender], sender, self.number, sealed)
            self._held[sender] = (text[: keys.SHARE_BYTES], text[keys.SHARE_BYTES :])
        self.terms.group.require(len(self._held))
        self._next = Stage.UNMASKING

    def mask(self, mailbox: Mailbox, entry: Input) -> MaskedVector:
        """Its vector and noise under its own mask and one for each other who has shared; once, for
        two vectors under one mask show their difference. A parcel that is not what its sender
        sealed is a `TamperedShare`, an input of `refusal` an `InputRefused`."""
        self.receive(mailbox)
        self._next = None
        reason = refusal(entry, self.terms)
        if reason is not None:
            raise InputRefused(self.number, reason)
        words = encode(entry, self.terms)
        keys.add_own_mask(words, keys.own_key(self._own_seed, self.terms))
        for other in self._held:
            if other != self.number:
                public = self._roster[other].masking
                key = keys.pair_key(self._masking, public, other, self.terms)
                keys.add_pair_mask(words, key, self.number, other)
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
        if self._roster.get(self.number) != self._public:
            raise KeyRefused(self.number, "not its own on the roster")
        public = {u: (one.sealing, one.masking) for u, one in self._roster.items()}
        for member in keys.copied(public):
            raise KeyRefused(member, keys.COPIED)


class Server:
    """Whoever adds a group's vectors in one round: a parent, the cloud, an elected device. It
    passes on what it can't read, and reads the sum.

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
        pairs = {member: (one.sealing, one.masking) for member, one in public.items()}
        self.refused = keys.refused_keys(pairs)
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
        seeds, secrets = dict[int, Mapping[int, bytes]](), dict[int, Mapping[int, bytes]]()
        for one in _each(answers, self._survivors):
            held = set(one.own_masks), set(one.masking_keys)
            if held != (set(self._survivors), set(self._silent)):
                raise MessageRefused(one.sender, "its shares are not of whom it was asked about")
            at = point(one.sender)
            seeds[at], secrets[at] = one.own_masks, one.masking_keys
        self._terms.group.require(len(seeds))
        threshold, words = self._terms.group.threshold, self._words.copy()
        for seed in keys.rebuild_all(seeds, threshold).values():
            keys.take_own_mask(words, keys.own_key(seed, self._terms))
        for member, secret in keys.rebuild_all(secrets, threshold).items():
            self._add_missing(words, member, secret)
        return decode(words, self._terms.points)

    def _add_missing(self, words: np.ndarray, member: int, secret: bytes) -> None:
        """What a silent member would have added against the pair masks of the survivors."""
        private = X25519PrivateKey.from_private_bytes(secret)
        if keys.public_of(private) != self._keys[member].masking:
            raise SharesDisagree(f"shares that are not of the masking key of member {member}")
        for other in self._survivors:
            key = keys.pair_key(private, self._keys[other].masking, other, self._terms)
            keys.add_pair_mask(words, key, member, other)


def _each(messages: Iterable[_Asked], senders: Collection[int]) -> Iterator[_Asked]:
    """The messages, each of another member of those who were asked."""
    waiting = set(senders)
    for one in messages:
        if one.sender not in waiting:
            reason = "a second one" if one.sender in senders else "nobody asked for it"
            raise MessageRefused(one.sender, reason)
        waiting.remove(one.sender)
        yield one


@dataclass(frozen=True, eq=False)
class Sum:
    """What a round ends in. `values` float64 (M,): the sum of the survivors' vectors and noise on
    the grid. `refused`: why each refused member's keys or input were."""

    values: np.ndarray = field(repr=False)
    survivors: tuple[int, ...]
    refused: Mapping[int, str]


def secure_sum(
    terms: Terms,
    inputs: Sequence[Input | None],
    silent: Mapping[int, Stage] | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    tap: Tap = lambda message: None,
) -> Sum:
    """The sum of the inputs of those who stay long enough; nobody sees a single one.

    It does not depend on `entropy`: all masks cancel, exactly.

    Args:
        inputs: (n,), of each member; None = it has nothing to send and falls silent before its
            vector, if not earlier. So does a member whose input is refused (`refusal`).
        silent: the first message that a member who falls silent does not send, by member.
        tap: hears every message; what goes to all, once.
    """
    leaves, server = silent or {}, Server(terms)
    members = [Member(terms, u, entropy) for u in range(terms.group.n_members)]
    refused: dict[int, str] = {}

    def heard(message: _Sent) -> _Sent:
        tap(message)
        return message

    def present(stage: Stage, numbers: Iterable[int]) -> list[int]:
        return [u for u in numbers if leaves.get(u, len(Stage)) > stage]

    def vectors() -> Iterator[MaskedVector]:
        for mailbox in mailboxes:
            u = heard(mailbox).recipient
            if (entry := inputs[u]) is not None and present(Stage.VECTOR, [u]):
                try:
                    yield heard(members[u].mask(mailbox, entry))
                except InputRefused as error:
                    refused[u] = error.reason

    announcing = present(Stage.KEYS, range(len(members)))
    roster = heard(server.roster([heard(members[u].announce()) for u in announcing]))
    sharing = present(Stage.SHARES, [one.sender for one in roster.keys])
    mailboxes = server.mailboxes([heard(members[u].share(roster)) for u in sharing])
    request = heard(server.request(vectors()))
    answering = present(Stage.UNMASKING, request.survivors)
    values = server.read([heard(members[u].unmask(request)) for u in answering])
    return Sum(values, request.survivors, server.refused | refused)
