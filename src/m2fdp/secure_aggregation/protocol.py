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
from m2fdp.secure_aggregation.traffic import Turnout

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
        turnout: how many came how far.
        messages: how many were sent, by members and by the server.
        members_bytes: that all members have sent.
        server_bytes: that the server has sent.
    """

    values: np.ndarray = field(repr=False)
    survivors: tuple[int, ...]
    refused: Mapping[int, str]
    turnout: Turnout
    messages: int
    members_bytes: int
    server_bytes: int


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

    def present(stage: Stage, numbers: Iterable[int]) -> list[int]:
        return [u for u in numbers if leaves.get(u, _STAYS) > stage]

    def refuse(u: int, reason: str) -> None:
        refused[u] = reason
        logger.warning("%s, %s: member %d is left out: %s", terms.label, group.name, u, reason)

    def vectors() -> Iterator[MaskedVector]:
        for mailbox in mailboxes:
            u = mailbox.recipient
            wire.down(mailbox)
            entry = inputs[u]
            if entry is None or not present(Stage.VECTOR, [u]):
                continue
            try:
                yield wire.up(members[u].mask(mailbox, entry))
            except InputRefused as error:
                refuse(u, error.reason)

    refused: dict[int, str] = {}
    wire = _Wire(tap)
    server = Server(terms)
    members = [Member(terms, u, entropy) for u in range(group.n_members)]

    announcing = present(Stage.KEYS, range(group.n_members))
    roster = server.roster([wire.up(members[u].announce()) for u in announcing])
    for u, reason in server.refused.items():
        refuse(u, reason)
    listed = [keys.sender for keys in roster.keys]
    wire.down(roster, len(listed))

    sharing = present(Stage.SHARES, listed)
    mailboxes = server.mailboxes([wire.up(members[u].share(roster)) for u in sharing])

    request = server.request(vectors())
    masked = request.survivors
    wire.down(request, len(masked))

    answering = present(Stage.UNMASKING, masked)
    values = server.read([wire.up(members[u].unmask(request)) for u in answering])
    turnout = Turnout(len(announcing), len(listed), len(sharing), len(masked), len(answering))
    return Sum(values, masked, refused, turnout, wire.messages, wire.sent_up, wire.sent_down)


class _Wire:
    """Counts what members send up and the server sends down."""

    def __init__(self, tap: Tap | None) -> None:
        self.messages, self.sent_up, self.sent_down = 0, 0, 0
        self._tap = tap

    def up(self, message: _Sent) -> _Sent:
        self.messages += 1
        self.sent_up += message.n_bytes
        if self._tap is not None:
            self._tap(message)
        return message

    def down(self, message: Message, recipients: int = 1) -> None:
        self.messages += recipients
        self.sent_down += recipients * message.n_bytes
        if self._tap is not None:
            self._tap(message)
