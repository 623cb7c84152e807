"""The lines of the ledger, and the one rule of what noise an observer can't subtract.

A head is the node whose noise protects a record first. For a record, an observer and a moment at
which something of the head gets out:

- v is the lowest message on the record's path that the observer can read;
- shift is how far the record moves v;
- deviation^2 is the variance of the noise of all who take part, at or below v, less the observer's.

All that the observer reads above v is made of v, of noise that knows nothing of the record, and of
other devices' messages: processing v further tells nothing new.

A ledger's line holds for every one of its releases, so the rule is read on the side of less noise:

- v is the head's own message for whoever is sent it, and for everybody further away the mean that
  the head's parent forms, although more branches join above. Where the parent sees sums only, the
  mean is the lowest that it, too, can read.
- Whoever colludes tells the others what noise it drew. Of a sum that is read without some of its
  senders, the loudest are those that are missing.
- Messages beside the record's path count with the noise of heads alone, the head's siblings:
  untrusted servers know the noise that one of them adds.
- Noise on the path above v counts against observers of whom none draws it: untrusted servers are
  one kind of observer, the cloud another. It has to be there at every release. A message of layer m
  is sent when models travel to a layer above m. The cloud's noise is there when every release is a
  global aggregation.
- Noise added below the head also hides the record. Exceptions: a device there knows its own noise,
  so the largest such share is left out. Untrusted servers below a trusted cloud see the messages,
  so for them it counts as zero.

An account (`Account`) says how often a release counts.

One line with its numbers: two untrusted servers below the cloud, three devices each, mechanism
`upload` with G = 1, all records in each of 4 rounds of one step. Each device adds noise of
deviation 6 eta. A record moves its device's message by 2G eta at most, which is the unit: shift 1,
behind noise of deviation 3. A sibling is handed the global model. Of it v is the mean of the three
that the server forms: over the record's weight there, 1/3, it holds 3 devices' noise, variance 27.
The sibling drew 9 of these itself, so that sqrt(18) = 4.243 is left. Four such releases move by
2 / 4.243 = 0.471 together. That is epsilon 1.866 at delta 1e-5. The server, whose v is the message
itself, learns 2 / 3 = 0.667, epsilon 2.753.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, sqrt
from typing import Any, Literal

import numpy as np

from m2fdp.core.privacy import sight
from m2fdp.core.privacy.accounting import Adjacency, Composition, Unit
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.sight import BELOW, BESIDE, COLLUDING, ELSEWHERE, NOBODY, SERVERS, TOGETHER
from m2fdp.core.schedule.rounds import RoundPlan

# Messages that are read as a sum only are this to others.
WORDS = "uniformly random words"
_MASKED = "secure aggregation hides the terms of its sums, computationally"

# v is the head's own message, or the mean that its parent forms.
View = Literal["message", "mean"]
# The laws of the shifts of a position's releases in one round, with their counts.
Laws = Callable[[Position, RoundPlan], Composition]


@dataclass(frozen=True)
class AlikeRounds:
    """So many rounds of one plan, as an observer of a position is shown them.

    Attributes:
        laws: those of the releases of one round.
        deviation: that of the noise that the observer can't subtract.
        joins_unseen: whether the laws hold the chance that the device joins at all.
    """

    plan: RoundPlan
    laws: Composition
    times: int
    deviation: float
    joins_unseen: bool = False


@dataclass(frozen=True, eq=False)
class Past:
    """The first rounds of a run: how many, how often each plan has occurred in them, and the rounds
    of each plan in the whole run, from 0, ascending."""

    total: int
    counted: Mapping[RoundPlan, int]
    rounds_of: Mapping[RoundPlan, np.ndarray]
    adjacency: Adjacency
    unit: Unit

    def rounds(self, *plans: RoundPlan) -> np.ndarray:
        """Of these plans so far, ascending."""
        its_rounds = np.sort(np.concatenate([self.rounds_of[plan] for plan in plans]))
        return its_rounds[: np.searchsorted(its_rounds, self.total)]


@dataclass(frozen=True)
class Account:
    """From the rounds of a run to what an observer is shown: here, a line's laws behind its noise
    in every round. Rooms bring others.

    Attributes:
        spent: epsilon of a release that is made once, whatever the number of rounds.
        held_out: whether it is about held-out records, not about training records.
    """

    spent: float = field(default=0.0, kw_only=True)
    held_out: bool = field(default=False, kw_only=True)

    @property
    def noises(self) -> tuple[float, ...]:
        """Its own deviations, beside the line's; then its rounds are not alike."""
        return ()

    @property
    def by_laws(self) -> bool:
        """Whether the line's laws are shown; else the account has releases of its own."""
        return True

    def behind(self, remaining: Callable[[float], float]) -> Account:
        """With each of its own deviations replaced."""
        return self

    def alone(self) -> Account:
        """See `Release.alone`."""
        return self

    def undrawn(self) -> Account:
        """The account as if nothing of the run were drawn yet."""
        return self

    def untold(self, laws: Composition, position: Position, past: Past) -> Composition:
        """The laws of a round for somebody who is never told who takes part."""
        return laws

    def promised(
        self, lines: Sequence[Release], rounds: int, unit: Unit
    ) -> tuple[dict[str, Any], list[str]]:
        """What the summary of a run with these lines adds: values by name, and assumptions."""
        return {}, []

    def ways(self, line: Release, past: Past) -> list[list[AlikeRounds]]:
        """What the observer of a line is shown, by each way to count it; each is an upper bound."""
        return [list(self.shown(line, past))]

    def shown(self, line: Release, past: Past) -> Iterable[AlikeRounds]:
        """What the observer of a line is shown, where there is one way to count it."""
        for plan, times in past.counted.items():
            position, deviation = line.views[plan.network]
            yield AlikeRounds(plan, line.laws(position, plan), times, deviation)

    def words(self, line: Release, shown: Sequence[AlikeRounds], past: Past) -> list[str]:
        """What the counting rests on, given what the observer is shown."""
        return []


EVERY_ROUND = Account()


@dataclass(frozen=True)
class Release:
    """One line of the ledger: what one kind of observer learns of the records of one position.

    Attributes:
        kind: the name under which `threat` distrusts the observer; `trusted_servers` never is.
        observer, sees: who sees what, in words.
        deviation: that of the noise that the observer can't subtract, in the unit of the laws; 0
            in clear. An account with releases of its own (`Account.by_laws`) does not read it.
        assumption: what the line rests on.
        elsewhere: position and deviation in the second and the further networks of the run.
        account: how the rounds are counted.
    """

    position: Position
    kind: str
    observer: str
    sees: str
    deviation: float
    assumption: str
    laws: Laws
    elsewhere: tuple[tuple[Position, float], ...] = ()
    account: Account = EVERY_ROUND

    @property
    def views(self) -> tuple[tuple[Position, float], ...]:
        """Position and deviation in each network of the run."""
        return ((self.position, self.deviation), *self.elsewhere)

    @property
    def noises(self) -> tuple[float, ...]:
        """All of its deviations."""
        return (*(deviation for _, deviation in self.views), *self.account.noises)

    def behind(self, remaining: Callable[[Position, float], float]) -> Release:
        """The line with each of its deviations replaced."""
        (own, *others) = ((at, remaining(at, noise)) for at, noise in self.views)
        account = self.account.behind(partial(remaining, self.position))
        return replace(self, deviation=own[1], elsewhere=tuple(others), account=account)

    def alone(self) -> Release:
        """The line of somebody who knows all noise but that on the device's own path."""
        return replace(self, account=self.account.alone())

    @property
    def joins_unseen(self) -> bool:
        """Whether the position's devices join rounds by chance and the observer can't tell when."""
        row = sight.rows().get(self.kind)
        if row is None or row.told or not self.position.unnoticed:
            return False
        return row.drew != SERVERS or self.position.head_layer > 0  # below the cloud, their own


def drawn_at_heads(position: Position, view: View, drew: str) -> float:
    """The deviation, of the noise of heads alone, that is left for who knows some noise."""
    if view == "message":
        return position.noise
    known = drew if drew in (COLLUDING, TOGETHER) else NOBODY
    # Devices elsewhere are in the sum that the cloud reads, or draw the noise of another head.
    elsewhere = position.cloud_reads if position.is_device else position.drawn_by_devices
    if (drew == BESIDE and position.is_device) or (drew == ELSEWHERE and elsewhere):
        known = BESIDE
    return position.mean.get(known, position.mean[NOBODY])


def unsubtractable(premises: Premises, position: Position, view: View, row: sight.Kind) -> float:
    """The deviation of all noise that a kind of observer can't subtract, by the one rule."""
    last = premises.last_release(position.head_layer)
    heads = drawn_at_heads(position, view, row.drew)
    variance = heads * heads
    # Those who draw noise below the head may collude. Below a trusted cloud there may be untrusted
    # servers, who read messages with their noise.
    known = row.drew in (COLLUDING, TOGETHER) or (row.drew == SERVERS and position.head_layer == 0)
    if last <= position.head_layer and not known:
        variance += position.inside[BESIDE if row.drew in (BESIDE, BELOW) else NOBODY]
    if row.unknown_from is not None:
        first = 0 if last == 0 else last + 1
        variance += sum(position.above[max(first, row.unknown_from) :])
    return sqrt(variance)


def line_of(
    premises: Premises,
    position: Position,
    reading: sight.Reading,
    line: Callable[[sight.Reading], Release],
) -> Release:
    """The line of an observer; the mechanism tells, by `line`, what a round shows it."""
    by_turns = reading.row.line
    return by_turns(premises, position, reading, line) if by_turns else line(reading)


def in_clear(position: Position, kind: str, sees: str, laws: Laws) -> Release:
    """The line of somebody who reads messages without noise."""
    return Release(position, kind, sight.rows()[kind].words, sees, 0.0, "–", laws)


def in_words(position: Position, kind: str, laws: Laws) -> Release:
    """The line of somebody who hears masked words."""
    return Release(position, kind, sight.rows()[kind].words, WORDS, inf, _MASKED, laws)


def trusted_above(position: Position, kind: str, sees: str, laws: Laws) -> Release:
    """The line of the trusted servers below and at a head that is one of them."""
    return replace(in_clear(position, kind, sees, laws), assumption="trusted by declaration")
