"""What a round costs, before it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from m2fdp.schedule.rounds import RoundPlan


@dataclass(frozen=True)
class Cost:
    """Energy in joules and delay in seconds."""

    energy_j: float
    delay_s: float


class Clock(Protocol):
    """Joules and seconds of a round as it is planned; no clock on a wall is ever read."""

    def round(self, plan: RoundPlan) -> Cost:
        """What the round costs, whatever has been before."""


def totals(clock: Clock, rounds: Sequence[RoundPlan]) -> list[Cost]:
    """What the rounds have cost together after each of t = 1…T.

    Where all cost the same these are multiples, so that rounding does not add up.
    """
    return added_up([clock.round(plan) for plan in rounds])


def added_up(costs: Sequence[Cost]) -> list[Cost]:
    """What rounds have cost together after each of them, from what each costs; as `totals`."""
    if len(set(costs)) == 1:
        (each,) = set(costs)
        return [Cost(t * each.energy_j, t * each.delay_s) for t in range(1, len(costs) + 1)]
    return list(accumulate(costs, _sum))


def _sum(so_far: Cost, cost: Cost) -> Cost:
    return Cost(so_far.energy_j + cost.energy_j, so_far.delay_s + cost.delay_s)
