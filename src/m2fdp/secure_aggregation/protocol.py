"""One round from the inputs to their sum, all parties played in turn."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from m2fdp.secure_aggregation.failures import InputRefused
from m2fdp.secure_aggregation.member import Member
from m2fdp.secure_aggregation.messages import MaskedVector, Message
from m2fdp.secure_aggregation.server import Server
from m2fdp.secure_aggregation.terms import Input, Stage, Terms

logger = logging.getLogger(__name__)

Tap = Callable[[Message], None]
_Sent = TypeVar("_Sent", bound=Message)
_STAYS = len(Stage)


@dataclass(frozen=True, eq=False)
class Sum:
    """What a round ends in.

    Attributes:
        values: float64 (M,), the sum of the survivors' vectors and noise, on the grid.
        survivors: whose.
        refused: why the keys or the input of each refused member were.
    """

    values: np.ndarray = field(repr=False)
    survivors: tuple[int, ...]
    refused: Mapping[int, str]


def secure_sum(
    terms: Terms,
    inputs: Sequence[Input | None],
    silent: Mapping[int, Stage] | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    tap: Tap | None = None,
) -> Sum:
    """The sum of the inputs of those who stay long enough; nobody sees a single one.

    It does not depend on `entropy`: all masks cancel, exactly.

    Args:
        inputs: (n,), of each member; None = it has nothing to send and falls silent before its
            vector, if not earlier. So does a member whose input is refused (see
            `encoding.refusal`), and the log says why.
        silent: the first message that a member who falls silent does not send, by member.
        entropy: all members' source of so many random bytes.
        tap: hears every message; what goes to all, once.

    Raises:
        BelowThreshold: too few are left at any stage. Nothing of a sum has been read.
        ProtocolError: somebody does not keep to the protocol; a type for each way not to.
    """
    group = terms.group
    if len(inputs) != group.n_members:
        raise ValueError(f"{len(inputs)} inputs for the {group.n_members} members of {group.name}")
    leaves = dict(silent or {})

    def heard(message: _Sent) -> _Sent:
        if tap is not None:
            tap(message)
        return message

    def present(stage: Stage, numbers: Iterable[int]) -> list[int]:
        return [u for u in numbers if leaves.get(u, _STAYS) > stage]

    def refuse(u: int, reason: str) -> None:
        refused[u] = reason
        logger.warning("%s, %s: member %d is left out: %s", terms.label, group.name, u, reason)

    def vectors() -> Iterator[MaskedVector]:
        for mailbox in mailboxes:
            u = heard(mailbox).recipient
            entry = inputs[u]
            if entry is None or not present(Stage.VECTOR, [u]):
                continue
            try:
                yield heard(members[u].mask(mailbox, entry))
            except InputRefused as error:
                refuse(u, error.reason)

    refused: dict[int, str] = {}
    server = Server(terms)
    members = [Member(terms, u, entropy) for u in range(group.n_members)]

    announcing = present(Stage.KEYS, range(group.n_members))
    roster = heard(server.roster([heard(members[u].announce()) for u in announcing]))
    for u, reason in server.refused.items():
        refuse(u, reason)

    sharing = present(Stage.SHARES, [keys.sender for keys in roster.keys])
    mailboxes = server.mailboxes([heard(members[u].share(roster)) for u in sharing])

    request = heard(server.request(vectors()))

    answering = present(Stage.UNMASKING, request.survivors)
    values = server.read([heard(members[u].unmask(request)) for u in answering])
    return Sum(values, request.survivors, refused)
