"""How often releases are counted where devices join rounds by chance.

A device's lowest server, the server's other devices, and listeners on their links know who joins.
For them we count the rounds that the device joins. Others see that it joined by its other records
and by its own noise. So the chance hides only whole devices (`unit: device`) below servers' noise:
a release is then one in which the device has a part with its chance (`joined_unseen`). Other
devices' noise counts as zero, since the number of devices is not certain. Rounds in which everybody
knows that the device joins are counted for everybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from m2fdp.core.config import Config
from m2fdp.core.engine.minibatches import draw_participants
from m2fdp.core.privacy.accounting import Adjacency, Composition, ShiftLaw, Unit, subsampled
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import Account, AlikeRounds, Past, Release
from m2fdp.core.schedule.rounds import RoundPlan, RunPlan
from m2fdp.core.streams import seeded

_TOLD = (
    "who joins a round is known to the device's own server, the other devices of that server, "
    "and whoever listens on their links, and to nobody else{but}; the numbers of rounds that "
    "the ledger counts give nothing away"
)
_SAME_ROUNDS = "with or without its data a device joins the same rounds, and adds its noise in them"


@dataclass(frozen=True, eq=False)
class Attendance:
    """The devices that join each round, as far as it is known before training.

    Attributes:
        joins: bool (T, N_L), the devices that join; None = every device may join every round.
        public: bool (T, N_L), the devices that join to everybody's knowledge; None = unknown.
    """

    joins: np.ndarray | None = None
    public: np.ndarray | None = None


UNKNOWN = Attendance()


@dataclass(frozen=True)
class ByChance(Account):
    """The account of rounds that a device of the position joins, openly or unseen."""

    attendance: Attendance = UNKNOWN

    def undrawn(self) -> ByChance:
        return replace(self, attendance=UNKNOWN)

    def untold(self, laws: Composition, position: Position, past: Past) -> Composition:
        assert position.joins is not None
        unseen = joined_unseen(laws, position.joins, past.adjacency, past.unit)
        return unseen or laws

    def promised(
        self, lines: Sequence[Release], rounds: int, unit: Unit
    ) -> tuple[dict[str, Any], list[str]]:
        """How often devices join, and what epsilon rests on where that is left to chance."""
        position, most = lines[0].position, 0
        for account in {line.account for line in lines}:
            joins = account.attendance.joins if isinstance(account, ByChance) else None
            of_one = rounds if joins is None else int(joins[:rounds].sum(axis=0).max(initial=0))
            most = max(most, of_one)
        chance = position.joins or 0.0
        joining = {"chance": chance, "rounds_expected": chance * rounds, "rounds_most": most}
        told = _TOLD.format(but=", but of who serves" if position.network.members_serve else "")
        return {"participation": joining}, [told, *[_SAME_ROUNDS] * (unit == "device")]

    def shown(self, line: Release, past: Past) -> Iterator[AlikeRounds]:
        for alike in super().shown(line, past):
            position, _ = line.views[alike.plan.network]
            unseen = None
            if line.joins_unseen and position.joins is not None:
                unseen = joined_unseen(alike.laws, position.joins, past.adjacency, past.unit)
            known = self._known_to_join(position, alike.plan, unseen is not None, past)
            if known:
                yield replace(alike, times=known)
            if unseen is not None and known < alike.times:
                yield replace(alike, laws=unseen, times=alike.times - known, joins_unseen=True)

    def _known_to_join(self, position: Position, plan: RoundPlan, unseen: bool, past: Past) -> int:
        """The largest number of a plan's rounds that a device of the position joins to the
        observer's knowledge. A device that is not named in public joins with less chance."""
        its_rounds = past.rounds(plan)
        drawn = self.attendance.public if unseen else self.attendance.joins
        if drawn is None:
            return 0 if unseen and not position.network.members_serve else len(its_rounds)
        return int(drawn[its_rounds][:, list(position.members)].sum(axis=0).max())

    def words(self, line: Release, shown: Sequence[AlikeRounds], past: Past) -> list[str]:
        chance, rounds = line.position.joins or 0.0, past.total
        known = sum(alike.times for alike in shown if not alike.joins_unseen)
        if any(alike.joins_unseen for alike in shown):
            serving = f", but who serves: {known} of {rounds}, the most of any of these devices"
            told = f"never told who joins a round, each with chance {chance:.3g}"
            return [told + serving * bool(known)]
        return [
            f"as if told who joins a round: counted are {known} of {rounds}, the most of any of "
            f"these devices; {chance * rounds:.3g} are expected"
        ]


def by_chance(premises: Premises, lines: list[Release]) -> list[Release]:
    """The lines of a ledger, by rounds that devices join if chance decides."""
    if premises.network.chance is None:
        return lines
    return [
        replace(line, account=ByChance(spent=line.account.spent))
        if type(line.account) is Account
        else line
        for line in lines
    ]


def as_drawn(config: Config, run_plan: RunPlan, ledger: Ledger) -> Ledger:
    """The ledger for the devices that training will draw."""
    (network, *_) = run_plan.networks
    if network.chance is None:
        return ledger
    streams = seeded(config.seed, b"").sampling
    rounds = range(1, len(run_plan.rounds) + 1)
    return of_those(ledger, np.stack([draw_participants(network, streams, t) for t in rounds]))


def of_those(
    ledger: Ledger, joins: np.ndarray | None = None, public: np.ndarray | None = None
) -> Ledger:
    """The ledger with an `Attendance` that is known."""
    given = {"joins": joins, "public": public}
    known = {name: value for name, value in given.items() if value is not None}
    counted: dict[Account, Account] = {}
    for account in {line.account for line in ledger.lines}:
        if isinstance(account, ByChance):
            counted[account] = replace(account, attendance=replace(account.attendance, **known))
    lines = (
        replace(line, account=counted.get(line.account, line.account)) for line in ledger.lines
    )
    return replace(ledger, lines=tuple(lines))


def joined_unseen(
    laws: Composition, rate: float, adjacency: Adjacency, unit: Unit
) -> Composition | None:
    """The releases of one round that the device joins with a probability, for an observer who is
    not told whether it does; None where no such law is proven.

    One chance is drawn for all of the round's releases, with laws if the device joins. Several
    Gaussians with certain shifts are one, moved by the root of the summed squares, also if chosen
    adaptively (Dong et al. 2022). A mixture with the release without the device keeps that order.

    A single record is credited no chance: its device joins without it too, and the other records,
    which may move the release much more, show that it did.
    """
    if unit == "record":
        return None
    if sum(count for _, count in laws) == 1:
        return tuple((thinned(law, rate), count) for law, count in laws)
    certain = all(len(law.shifts) == 1 for law, _ in laws)
    if not certain or adjacency == "replace_one":
        return None
    largest = sqrt(sum(count * law.largest**2 for law, count in laws))
    return ((subsampled(rate, largest), 1),)


def thinned(law: ShiftLaw, rate: float) -> ShiftLaw:
    """The law of a release that the record has a part in with this probability only."""
    stays, shifts, moves = 0.0, law.shifts, law.probabilities
    if law.shifts[0] == 0.0:
        stays, shifts, moves = law.probabilities[0], law.shifts[1:], law.probabilities[1:]
    return ShiftLaw(
        (0.0, *shifts), (1.0 - rate + rate * stays, *(rate * chance for chance in moves))
    )
