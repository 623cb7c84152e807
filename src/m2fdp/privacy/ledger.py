"""The privacy ledger: for every position of a data owner, what every observer learns.

Positions are devices that share everything an accountant needs: where their noise is added,
their weights on the path below it, their sampling rate and their noise. Each observer of a
position is one line; what carries no noise is a line with an infinite epsilon, never dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from m2fdp.privacy.accounting import Adjacency, Composition, ShiftLaw, epsilon
from m2fdp.privacy.positions import Position
from m2fdp.schedule.rounds import RoundPlan

# A law that moves the release for certain, without noise.
_IN_CLEAR = ShiftLaw((inf,), (1.0,))


@dataclass(frozen=True)
class Line:
    """What one kind of observer learns about the records of one position.

    Attributes:
        observer: who, in words.
        kind: the name under which `threat` distrusts it; `trusted_servers` never is.
        sees: what, in words.
        noise: the part of the noise that the observer can't subtract, in the unit of the
            position's laws; 0 for messages in clear.
        assumption: what the line rests on.
        elsewhere: position and noise in the second and the further networks of the run.
    """

    position: Position
    observer: str
    kind: str
    sees: str
    noise: float
    assumption: str
    elsewhere: tuple[tuple[Position, float], ...] = ()

    @property
    def views(self) -> tuple[tuple[Position, float], ...]:
        """Position and noise in each network of the run."""
        return ((self.position, self.noise), *self.elsewhere)


@dataclass(frozen=True, eq=False)
class Ledger:
    """All lines of a run.

    Attributes:
        laws: the laws of a position's releases in one round, with their counts.
        plans: the rounds t = 1…T, in order.
        distrusted: the kinds of observers that must not learn more than the target.
    """

    lines: tuple[Line, ...]
    laws: Callable[[Position, RoundPlan], Composition]
    plans: tuple[RoundPlan, ...]
    distrusted: frozenset[str]
    delta: float
    adjacency: Adjacency

    def epsilon(self, line: Line, rounds: int) -> float:
        """An upper bound on the line's epsilon after some rounds."""
        return epsilon(self.composition(line, rounds), self.delta, self.adjacency)

    def verified(self, rounds: int) -> float:
        """The largest epsilon over records and distrusted observers after some rounds."""
        return self._largest([x for x in self.lines if x.kind in self.distrusted], rounds)

    def pooled(self, rounds: int) -> float:
        """The largest epsilon over records if all distrusted observers pool what they know.

        A head's noise is known to the head alone, so what is left is its noise, unless one of them
        sees messages in clear.
        """
        together = [
            replace(
                line,
                noise=line.position.noise if line.noise else 0.0,
                elsewhere=tuple((p, p.noise if noise else 0.0) for p, noise in line.elsewhere),
            )
            for line in self.lines
            if line.kind in self.distrusted
        ]
        return self._largest(together, rounds)

    def by_kind(self, rounds: int) -> dict[str, float]:
        """The largest epsilon of each kind of observer after some rounds."""
        kinds = dict.fromkeys(line.kind for line in self.lines)
        return {
            kind: self._largest([x for x in self.lines if x.kind == kind], rounds) for kind in kinds
        }

    def composition(self, line: Line, rounds: int) -> Composition:
        """What the observer sees in so many rounds, over the noise."""
        sums: Counter[ShiftLaw] = Counter()
        for plan, times in self._counted[rounds].items():
            position, noise = line.views[plan.network]
            for law, count in self.laws(position, plan):
                sums[law.scaled(1.0 / noise) if noise else _IN_CLEAR] += count * times
        return tuple(sums.items())

    def _largest(self, lines: Sequence[Line], rounds: int) -> float:
        """Of the observers of a position, who all see one law, those with least noise matter."""
        of_position: dict[Position, dict[tuple[float, ...], Line]] = {}
        for line in lines:
            noises = tuple(noise for _, noise in line.views)
            of_position.setdefault(line.position, {})[noises] = line
        compositions = {
            self.composition(line, rounds)
            for alike in of_position.values()
            for noises, line in alike.items()
            if not any(_quieter(other, noises) for other in alike)
        }
        return max(
            (epsilon(c, self.delta, self.adjacency) for c in undominated(compositions)),
            default=0.0,
        )

    @cached_property
    def _counted(self) -> tuple[Counter[RoundPlan], ...]:
        """How often each plan has occurred after t = 0…T rounds."""
        counts: Counter[RoundPlan] = Counter()
        result = [Counter(counts)]
        for plan in self.plans:
            counts[plan] += 1
            result.append(Counter(counts))
        return tuple(result)


def _quieter(noises: tuple[float, ...], than: tuple[float, ...]) -> bool:
    """Whether noises are nowhere more, and somewhere less."""
    return noises != than and all(a <= b for a, b in zip(noises, than, strict=True))


def joint_ledger(ledgers: Sequence[Ledger]) -> Ledger:
    """One ledger of a run over several networks, from one of each.

    The networks differ in who takes part, so every device has the same kinds of observers in
    all. Devices share a line where they share a position in every network.

    Args:
        ledgers: by the number that a round's plan has for its network; all with the plans of
            the whole run.
    """
    if len(ledgers) == 1:
        return ledgers[0]
    lines = [_lines_by_position(ledger) for ledger in ledgers]
    n_devices = sum(len(position.members) for position in lines[0])
    places = np.empty((n_devices, len(ledgers)), dtype=np.int64)
    for network, positions_ in enumerate(lines):
        for place, position in enumerate(positions_):
            places[list(position.members), network] = place
    _, first, inverse = np.unique(places, axis=0, return_index=True, return_inverse=True)
    ordered = [list(positions_.items()) for positions_ in lines]
    joined = []
    for alike in np.argsort(first):
        (own, own_lines), *others = [
            ordered[network][place] for network, place in enumerate(places[first[alike]])
        ]
        position = replace(own, members=tuple(np.flatnonzero(inverse == alike).tolist()))
        for line in own_lines.values():
            elsewhere = tuple((other, by_kind[line.kind].noise) for other, by_kind in others)
            joined.append(replace(line, position=position, elsewhere=elsewhere))
    return replace(ledgers[0], lines=tuple(joined))


def _lines_by_position(ledger: Ledger) -> dict[Position, dict[str, Line]]:
    """The lines of every position by kind of observer; each position has one of a kind."""
    result: dict[Position, dict[str, Line]] = {}
    for line in ledger.lines:
        result.setdefault(line.position, {})[line.kind] = line
    return result


def undominated(compositions: set[Composition]) -> list[Composition]:
    """Without the subsampled ones that another, of more samples and less noise, dominates."""
    kept = []
    alike: dict[int, list[Composition]] = {}
    for composition in compositions:
        alone = len(composition) == 1
        if not alone or not _is_subsampled(composition[0][0]):
            kept.append(composition)
        else:
            count = composition[0][1]
            alike.setdefault(count, []).append(composition)
    for group in alike.values():
        most = 0.0
        for composition in sorted(group, key=lambda c: (-c[0][0].moved, -c[0][0].largest)):
            if composition[0][0].largest > most:
                most = composition[0][0].largest
                kept.append(composition)
    return kept


def _is_subsampled(law: ShiftLaw) -> bool:
    """Whether it is no shift or, with some probability, one finite one."""
    some = law.shifts[1:] if law.shifts[0] == 0 else law.shifts
    return len(some) == 1 and some[0] < inf
