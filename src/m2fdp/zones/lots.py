"""Super-nodes by lot: who of a zone's devices serves in a round (H Sec. IV-A).

Everybody commits to a random nonce, SHA-256(nonce ‖ number), and shows the nonce when all have
committed; the sum of the nonces modulo the number of candidates is the winner's place. One honest
nonce makes it uniform, whatever the others chose before they saw it. Who does not show what it
has committed to is left out, and the others draw anew with fresh nonces: else the last one to show
its own could choose between the results with and without it. It may still leave when it dislikes
the winner, which is seen and counted.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from m2fdp.core.topology.network import Network

NONCE_BYTES = 32


class NobodyElected(Exception):  # noqa: N818 (named as the event that it is)
    """Every candidate of an election has left it."""


@dataclass
class Candidate:
    """One device in an election. It keeps to the protocol, or falls silent after its commitment;
    `nonces` gives so many random bytes."""

    number: int
    nonces: Callable[[int], bytes]
    silent: bool = False
    nonce: bytes = b""

    def commit(self) -> bytes:
        """To a nonce, a fresh one each time."""
        self.nonce = self.nonces(NONCE_BYTES)
        return commitment(self.nonce, self.number)

    def reveal(self, others: Mapping[int, bytes]) -> bytes | None:
        """The nonce, after those of others by number; None = nothing comes."""
        return None if self.silent else self.nonce


@dataclass(frozen=True)
class Election:
    """How one ended: the winner's number, the draws that it took, the messages of `NONCE_BYTES`.
    `left_out`, in the order of the draws, did not show what they had committed to."""

    leader: int
    left_out: tuple[int, ...]
    draws: int
    messages: int


def elect(
    numbers: Sequence[int], nonces: Callable[[int], bytes], silent: Collection[int] = ()
) -> Election:
    """An election among devices that do what they should, but for the `silent`. Nonces of a keyed
    generator make a result that repeats."""
    return hold([Candidate(number, nonces, number in silent) for number in numbers])


def hold(candidates: Sequence[Candidate]) -> Election:
    """An election among candidates, who show nonces in turn; `NobodyElected` where none is left."""
    left_out: list[int] = []
    messages = draws = 0
    while candidates:
        draws += 1
        others = len(candidates) - 1
        commitments = {one.number: one.commit() for one in candidates}
        messages += len(candidates) * others
        nonces: dict[int, bytes] = {}
        for one in candidates:
            nonce = one.reveal(MappingProxyType(nonces))
            messages += others if nonce is not None else 0
            if nonce is not None and opens(commitments[one.number], nonce, one.number):
                nonces[one.number] = nonce
        if len(nonces) == len(candidates):
            return Election(winner(nonces), tuple(left_out), draws, messages)
        left_out += [one.number for one in candidates if one.number not in nonces]
        candidates = [one for one in candidates if one.number in nonces]
    raise NobodyElected(f"all {len(left_out)} candidates have left the election")


def commitment(nonce: bytes, number: int) -> bytes:
    """What binds a candidate to its nonce and tells nothing about it: SHA-256, 32 bytes.

    With its number in it, nobody can pass on another's as its own.
    """
    return hashlib.sha256(nonce + number.to_bytes(4)).digest()


def opens(committed: bytes, nonce: bytes, number: int) -> bool:
    """Whether the nonce is what the candidate has committed to."""
    return len(nonce) == NONCE_BYTES and commitment(nonce, number) == committed


def winner(nonces: Mapping[int, bytes]) -> int:
    """The candidate at the place that the nonces add up to."""
    numbers = sorted(nonces)
    return numbers[sum(int.from_bytes(nonce) for nonce in nonces.values()) % len(numbers)]


def ballot_bits(network: Network) -> np.ndarray | None:
    """What each device that takes part sends to elect its zone's super-node: float64 (N_L,); None
    where nobody is elected.

    A commitment and a nonce to each of the others, in an election that nobody leaves; 2 k (k-1)
    messages of k devices (H Sec. IV-A).
    """
    if not network.members_serve:
        return None
    chance = 1.0 if network.chance is None else network.chance
    others = (network.present - 1)[network.tree.parents[-1]] * chance
    return 2.0 * 8 * NONCE_BYTES * others
