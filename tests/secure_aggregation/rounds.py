"""Rounds whose parties a test plays itself, so that it can sit on the wire and look inside."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from m2fdp.secure_aggregation import keys
from m2fdp.secure_aggregation.messages import Mailbox, MaskedVector, Message, Roster, UnmaskShares
from m2fdp.secure_aggregation.protocol import Member, Server
from m2fdp.secure_aggregation.terms import Group, Input, Scale, Terms

private_key = X25519PrivateKey.from_private_bytes


def terms_of(n, threshold=None, n_parameters=20, deviation=0.5, label="run 1, round 1"):
    """Of a group of n with vectors of norm at most 1."""
    group = Group("zone 0", n, threshold or 2 * n // 3 + 1)
    return Terms(group, Scale(1.0, deviation), n_parameters, label)


def seeded(seed: int) -> Callable[[int], bytes]:
    """Entropy that repeats."""
    return np.random.default_rng(seed).bytes


def inputs_of(terms: Terms, seed: int = 0) -> list[Input]:
    """Vectors of different norms up to the bound, with noise."""
    rng = np.random.default_rng(seed)
    inputs = []
    for _ in range(terms.group.n_members):
        vector = rng.normal(size=terms.n_parameters)
        vector *= rng.random() * terms.scale.bound / np.linalg.norm(vector)
        noise = rng.normal(size=terms.n_parameters) * terms.scale.deviation
        inputs.append(Input(vector, noise))
    return inputs


def exact_sum(inputs: list[Input], terms: Terms) -> np.ndarray:
    """The sum of the inputs on the grid, in Python's integers: f by its formula, one number a
    time."""
    scale = terms.scale
    points = (2**31 - 1) // (terms.group.n_members * (scale.bound + 8 * scale.deviation))

    def integers(given: Input) -> list[int]:
        if given.noise is None:
            return [int(float(x) * points) for x in given.vector]
        pairs = zip(given.vector, given.noise, strict=True)
        return [round((float(x) + float(z)) * points) for x, z in pairs]

    columns = zip(*map(integers, inputs), strict=True)
    return np.array([sum(column) / points for column in columns])


def changed(kind: type, change: Callable[[Message], Message]) -> Callable[[Message], Message]:
    """A wire on which messages of a kind are replaced."""
    return lambda message: change(message) if isinstance(message, kind) else message


def cancel_pairs(words: np.ndarray, secret: bytes, owner: int, roster: Roster, terms: Terms):
    """Take a member's pair masks off its words, by its masking key: the others add them."""
    for one in roster.keys:
        if one.sender != owner:
            key = keys.pair_key(private_key(secret), one.masking, one.sender, terms)
            keys.add_pair_mask(words, key, one.sender, owner)


@dataclass
class Played:
    """A round up to the masked vectors, and what has been on the wire."""

    terms: Terms
    members: list[Member]
    server: Server
    roster: Roster
    mailboxes: tuple[Mailbox, ...]
    vectors: dict[int, MaskedVector]

    def unmask(self, late: Collection[int] = ()) -> list[UnmaskShares]:
        """The survivors' answers; vectors that come late are not in the sum."""
        arrived = [one for u, one in self.vectors.items() if u not in late]
        request = self.server.request(arrived)
        return [self.members[u].unmask(request) for u in request.survivors]


def play(
    terms: Terms,
    inputs: list[Input] | None = None,
    entropy: Callable[[int], bytes] | None = None,
    change: Callable[[Message], Message] = lambda message: message,
) -> Played:
    """All members to their masked vectors. Whoever sits on the wire may change each message."""
    inputs, entropy = inputs or inputs_of(terms), entropy or seeded(1)
    members = [Member(terms, u, entropy) for u in range(terms.group.n_members)]
    server = Server(terms)
    roster = change(server.roster([change(member.announce()) for member in members]))
    sealed = [change(members[one.sender].share(roster)) for one in roster.keys]
    mailboxes = tuple(change(mailbox) for mailbox in server.mailboxes(sealed))
    vectors = {
        box.recipient: members[box.recipient].mask(box, inputs[box.recipient]) for box in mailboxes
    }
    return Played(terms, members, server, roster, mailboxes, vectors)
