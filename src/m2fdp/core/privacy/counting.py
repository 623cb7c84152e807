"""How often a position's releases are counted for an observer; devices may join rounds by chance.

Where devices join by chance, their lowest server, its other devices, and whoever listens on their
links are told who does. They learn of a record in the rounds that its device joins: those are
counted. Others learn that it joined only if something shows it. The device's other records do, so
the chance hides whole devices alone (`unit: device`). The device's own noise shows it too. Noise of
servers is there in every round: a release is then one in which the device has a part with its
chance (`joined_unseen`). Of other devices' noise nothing is counted, for how many join is not
certain. Rounds in which everybody knows that the device joins are counted for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from m2fdp.core.privacy.accounting import Adjacency, Composition, Unit, subsampled
from m2fdp.core.privacy.positions import Position
from m2fdp.core.schedule.rounds import RoundPlan

# The laws of the shifts of a position's releases in one round, with their counts.
Laws = Callable[[Position, RoundPlan], Composition]


@dataclass(frozen=True)
class AlikeRounds:
    """Rounds of one plan, as an observer of a position is shown them.

    Attributes:
        laws: laws of the releases of one of them.
        times: how many of them count.
        deviation: deviation of the noise that the observer can't subtract.
        joins_unseen: whether the laws hold the chance that the device joins at all; else only
            rounds that it joins count.
    """

    plan: RoundPlan
    laws: Composition
    times: int
    deviation: float
    joins_unseen: bool = False


@dataclass(frozen=True, eq=False)
class Attendance:
    """Who joins which round, as it is drawn before training.

    Attributes:
        joins: bool (T, N_L), the devices that join.
        public: bool (T, N_L), those of whom everybody knows that they join; None = nothing is
            known of it.
    """

    joins: np.ndarray
    public: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Past:
    """The first rounds of a run.

    Attributes:
        total: how many rounds.
        counted: how often each plan has occurred in them.
        rounds_of: the rounds of each plan in the whole run, counted from 0, ascending.
        attendance: who joins; None counts every device in every round.
    """

    total: int
    counted: Mapping[RoundPlan, int]
    rounds_of: Mapping[RoundPlan, np.ndarray]
    attendance: Attendance | None
    delta: float
    adjacency: Adjacency
    unit: Unit

    def rounds(self, *plans: RoundPlan) -> np.ndarray:
        """The rounds of these plans so far, ascending."""
        its_rounds = np.sort(np.concatenate([self.rounds_of[plan] for plan in plans]))
        return its_rounds[: np.searchsorted(its_rounds, self.total)]


def joined(
    position: Position, alike: AlikeRounds, hidden: bool, past: Past
) -> Iterator[AlikeRounds]:
    """The rounds that a device of the position joins, and those that it may have joined unseen.

    Args:
        alike: all rounds of a plan, as if the device joined every one of them.
        hidden: whether the observer can't tell when the device joins.
    """
    if position.joins is None:
        yield alike
        return
    unseen = None
    if hidden:
        unseen = joined_unseen(alike.laws, position.joins, past.adjacency, past.unit)
    known = _known_to_join(position, alike.plan, unseen is not None, past)
    if known:
        yield AlikeRounds(alike.plan, alike.laws, known, alike.deviation)
    if unseen is not None and known < alike.times:
        left = alike.times - known
        yield AlikeRounds(alike.plan, unseen, left, alike.deviation, joins_unseen=True)


def _known_to_join(position: Position, plan: RoundPlan, unseen: bool, past: Past) -> int:
    """The most of a plan's rounds that a device of the position joins for all that an observer
    knows. Not to be named in public only makes it less likely that a device joined."""
    its_rounds, drawn = past.rounds(plan), None
    if past.attendance is not None:
        drawn = past.attendance.public if unseen else past.attendance.joins
    if drawn is None:
        return 0 if unseen and not position.network.elected else len(its_rounds)
    return int(drawn[its_rounds][:, list(position.members)].sum(axis=0).max())


def joined_unseen(
    laws: Composition, rate: float, adjacency: Adjacency, unit: Unit
) -> Composition | None:
    """The releases of one round that the device joins with a probability, for an observer who is
    not told whether it does; None where no such law is proven.

    One chance is drawn for all of the round's releases. Several Gaussians whose shifts are certain
    are one, moved by the root of the summed squares, adaptively chosen ones too (Dong et al. 2022).
    A mixture with the release without the device keeps that order.

    Of a single record no chance is credited. Without the record the device still joins, and its
    other records, which may move the release by many times as much, show that it did. The two
    worlds then differ in the rounds that the device joins as if these were known.

    Args:
        laws: laws of the releases of a round that it joins.
    """
    if unit == "record":
        return None
    if sum(count for _, count in laws) == 1:
        return tuple((law.thinned(rate), count) for law, count in laws)
    certain = all(len(law.shifts) == 1 for law, _ in laws)
    if not certain or adjacency == "replace_one":
        return None
    largest = sqrt(sum(count * law.largest**2 for law, count in laws))
    return ((subsampled(rate, largest), 1),)


def words_of_joining(chance: float | None, shown: Sequence[AlikeRounds], rounds: int) -> list[str]:
    """What the observer knows of who joins, where that is left to chance.

    Args:
        shown: what it is shown in so many rounds.
    """
    if chance is None:
        return []
    known = sum(alike.times for alike in shown if not alike.joins_unseen)
    if any(alike.joins_unseen for alike in shown):
        serving = f", but who serves: {known} of {rounds}, the most of any of these devices"
        told = f"never told who joins a round, each with chance {chance:.3g}"
        return [told + serving * bool(known)]
    return [
        f"as if told who joins a round: counted are {known} of {rounds}, the most of any of these "
        f"devices; {chance * rounds:.3g} are expected"
    ]
