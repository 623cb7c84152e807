"""What rounds cost together, before they are trained; no clock on a wall is ever read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Cost:
    """Energy in joules and delay in seconds."""

    energy_j: float
    delay_s: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.energy_j + other.energy_j, self.delay_s + other.delay_s)


def totals(costs: Sequence[Cost]) -> list[Cost]:
    """What rounds have cost together after each of t = 1…T, from what each costs.

    Where all cost the same these are multiples, so that rounding does not add up.
    """
    if len(set(costs)) == 1:
        (each,) = set(costs)
        return [Cost(t * each.energy_j, t * each.delay_s) for t in range(1, len(costs) + 1)]
    return list(accumulate(costs))
