"""One round from the inputs to their sum, all parties played in turn."""

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

Tap = Callable[[Message], None]
_Sent = TypeVar("_Sent", bound=Message)
_STAYS = len(Stage)


@dataclass(frozen=True, eq=False)
class Sum:
    """What a round ends in: float64 (M,), the sum of the survivors' vectors and noise on the grid,
    and why the keys or the input of each refused member were."""

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
            vector, if not earlier. So does a member whose input is refused (`encoding.refusal`).
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
        return [u for u in numbers if leaves.get(u, _STAYS) > stage]

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
    sharing = present(Stage.SHARES, [keys.sender for keys in roster.keys])
    mailboxes = server.mailboxes([heard(members[u].share(roster)) for u in sharing])
    request = heard(server.request(vectors()))
    answering = present(Stage.UNMASKING, request.survivors)
    values = server.read([heard(members[u].unmask(request)) for u in answering])
    return Sum(values, request.survivors, server.refused | refused)
