"""Against a server that lies: signed keys, and one list of survivors (Bonawitz et al. 2017, Fig. 4,
for active adversaries).

What `protocol` does is lost to such a server in three ways. It makes up the keys of all others, and
reads a member's vector by itself. It says of a member to some that it has survived and to others
that it fell silent: with c >= 2t - n colluders it gets t shares of both secrets. And with fewer it
tells each member of other silent ones, until what it has unmasks a sum of less than t.

So each member signs its keys, and shares with nobody whose keys are unsigned; and it gives shares
for one list of survivors, that it has signed itself, once a quorum has signed the same. Honest
members sign once and c colluders for every list: two lists take 2q <= (n - c) + 2c signatures, and
there are none for a quorum q > (n + c)/2. It is t that keeps secrets from t - 1 members, and q that
keeps the server to one list; q > t where 2t <= n + c.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from m2fdp.secure_aggregation.keys import info
from m2fdp.secure_aggregation.messages import (
    BelowThreshold,
    KeyRefused,
    Mailbox,
    MaskedVector,
    PublicKeys,
    Roster,
    SealedShares,
    UnmaskRefused,
    UnmaskRequest,
    UnmaskShares,
)
from m2fdp.secure_aggregation.protocol import Member
from m2fdp.secure_aggregation.terms import Group, Input, Terms


@dataclass(frozen=True)
class Signing:
    """How members know each other: a member's own signature of a text, and whether a member, by
    number, has made a signature of a text."""

    sign: Callable[[bytes], bytes]
    verify: Callable[[int, bytes, bytes], bool]


def quorum(group: Group, colluding: int) -> int:
    """q, the fewest signatures under a list of survivors: at least t, and above (n + c)/2, so that
    c colluders of a server that lies sign no second list."""
    return max(group.threshold, (group.n_members + colluding) // 2 + 1)


def text_of_keys(terms: Terms, keys: PublicKeys) -> bytes:
    """What a member signs with its keys: them, its number, round, group and grid."""
    grid = keys.sender.to_bytes(4) + terms.points.to_bytes(8)
    return info("signed keys", terms) + grid + keys.sealing + keys.masking


def text_of_survivors(terms: Terms, request: UnmaskRequest) -> bytes:
    """What a survivor signs before it unmasks: who survived and who did not, round and group."""
    lists = [sorted(request.survivors), sorted(request.silent)]
    numbers = (len(one).to_bytes(4) + b"".join(u.to_bytes(4) for u in one) for one in lists)
    return info("signed survivors", terms) + b"".join(numbers)


def check_keys(
    terms: Terms, roster: Roster, signatures: Mapping[int, bytes], signing: Signing
) -> None:
    """Refuse (`KeyRefused`) keys that their owner has not signed for this round, group and grid."""
    for one in roster.keys:
        text = text_of_keys(terms, one)
        if not signing.verify(one.sender, signatures.get(one.sender, b""), text):
            raise KeyRefused(one.sender, "not signed by it for this round and grid")


def signers(
    terms: Terms, request: UnmaskRequest, signatures: Mapping[int, bytes], signing: Signing
) -> frozenset[int]:
    """The survivors who have signed a list of survivors."""
    text = text_of_survivors(terms, request)
    signed = (u for u in request.survivors if signing.verify(u, signatures.get(u, b""), text))
    return frozenset(signed)


class ActiveMember:
    """A member's side of one round with a server that may lie: five messages, each once. It refuses
    what `Member`, which plays for a server that does not lie, refuses, too.

    Args:
        least: fewest survivors, and signatures under their list: q of `quorum`, or more where more
            are counted on.
    """

    def __init__(self, member: Member, signing: Signing, least: int) -> None:
        self._member, self._signing, self._least = member, signing, least
        self._confirmed: UnmaskRequest | None = None
        self.terms = member.terms

    def announce(self) -> tuple[PublicKeys, bytes]:
        """Its public keys, and its signature of them."""
        keys = self._member.announce()
        return keys, self._signing.sign(text_of_keys(self.terms, keys))

    def share(self, roster: Roster, signatures: Mapping[int, bytes]) -> SealedShares:
        """Shares of its two secrets for the others of a roster, at least q, who all have signed."""
        if len(roster.keys) < self._least:
            raise BelowThreshold(self.terms.group.name, len(roster.keys), self._least)
        check_keys(self.terms, roster, signatures, self._signing)
        return self._member.share(roster)

    def mask(self, mailbox: Mailbox, entry: Input) -> MaskedVector:
        return self._member.mask(mailbox, entry)

    def receive(self, mailbox: Mailbox) -> None:
        self._member.receive(mailbox)

    def confirm(self, request: UnmaskRequest) -> bytes:
        """Its signature of the one list of survivors, at least q, that it will unmask."""
        if self._confirmed is not None:
            raise self._refused("it has signed another list of survivors")
        self._member.check(request)
        if (survivors := len(request.survivors)) < self._least:
            raise self._refused(f"{survivors} survivors, and {self._least} are counted on")
        self._confirmed = request
        return self._signing.sign(text_of_survivors(self.terms, request))

    def unmask(self, signatures: Mapping[int, bytes]) -> UnmaskShares:
        """Its shares for the list that it and, by these signatures, at least q have signed."""
        if self._confirmed is None:
            raise self._refused("it has signed no list of survivors")
        signed = len(signers(self.terms, self._confirmed, signatures, self._signing))
        if signed < self._least:
            raise self._refused(f"{signed} have signed its list of survivors, not {self._least}")
        return self._member.unmask(self._confirmed)

    def _refused(self, reason: str) -> UnmaskRefused:
        return UnmaskRefused(self._member.number, reason)
