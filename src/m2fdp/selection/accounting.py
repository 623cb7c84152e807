"""Epsilon of a whole procedure: the runs of a search, their scores, and the run that is released.

Servers and cloud read the messages of every run, so for them all runs compose. What a run trains
with and what is released last follow from scores that were released before, which composition
allows. A device's records stay where they are. All runs of the search train on a record, or all
hold it out and count it in the score (`m2fdp.selection.scores`). The released run trains on it in
either case.

Two runs with their numbers: full batches, each run one Gaussian in all. The search's two runs move
by 0.1 standard deviations each, their scores by 0.1, and the released run by 0.2. Somebody who
reads all is moved by sqrt(2 x 0.01 + 0.04) = 0.245, epsilon 0.905 at delta 1e-5; the released run
alone would say 0.724.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor, sqrt

import pandas as pd

from m2fdp.core.privacy.accounting import Composition, ShiftLaw, epsilon, gaussian_shift, subsampled
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.releases import Release
from m2fdp.core.privacy.sight import KINDS


@dataclass(frozen=True, eq=False)
class Procedure:
    """The ledgers of a released run and of what was run on the same devices' records to choose it,
    with lines of held-out records."""

    released: Ledger
    searched: tuple[Ledger, ...]

    def lines(self) -> pd.DataFrame:
        """One row a kind of observer: the largest epsilon over records, of the released run and of
        all.

        Columns: observer, kind, distrusted, runs, epsilon_released, epsilon.
        """
        released = self.released.by_kind(len(self.released.plans))
        rows = [
            {
                "observer": KINDS[kind].words,
                "kind": kind,
                "distrusted": kind in self.released.distrusted,
                "runs": 1 + len(self.searched),
                "epsilon_released": epsilon_released,
                "epsilon": self.epsilon(kind),
            }
            for kind, epsilon_released in released.items()
        ]
        return pd.DataFrame(rows)

    def verified(self) -> float:
        """The largest epsilon over records and distrusted observers."""
        return max(self.epsilon(kind) for kind in self.released.bound)

    def epsilon(self, kind: str) -> float:
        """The largest epsilon over records of all that a kind of observer reads."""
        delta, adjacency = self.released.delta, self.released.adjacency
        first, *others = self._by_device
        totals = set()
        for held_out in (False, True):
            of_runs = [first[kind, False], *(lines[kind, held_out] for lines in others)]
            for device in first[kind, False]:
                of_device = [lines[device] for lines in of_runs]
                totals.add(_composed((self.released, *self.searched), of_device))
        return max(spent + epsilon(each, delta, adjacency) for spent, each in totals)

    @cached_property
    def _by_device(self) -> list[dict[tuple[str, bool], dict[int, Release]]]:
        """For each run the lines by observer, and by whether records are held out, and device."""
        result = []
        for ledger in (self.released, *self.searched):
            lines: dict[tuple[str, bool], dict[int, Release]] = {}
            for line in ledger.lines:
                of_observer = lines.setdefault((line.kind, line.account.held_out), {})
                of_observer.update(dict.fromkeys(line.position.members, line))
            result.append(lines)
        return result


def _composed(ledgers: Sequence[Ledger], lines: Sequence[Release]) -> tuple[float, Composition]:
    """What is spent once, and all releases together, by one line of each ledger."""
    sums: Counter[ShiftLaw] = Counter()
    for ledger, line in zip(ledgers, lines, strict=True):
        for law, count in ledger.composition(line, len(ledger.plans)):
            sums[law] += count
    ordered = sorted(sums.items(), key=lambda each: each[0].shifts)
    return sum(line.account.spent for line in lines), tuple(ordered)


@dataclass(frozen=True)
class Targets:
    """Epsilon of the released run, and of each run of its search."""

    released: float
    searched: float


def split_target(
    target: float, delta: float, n_searched: int, share: float, factor: float = 1.0
) -> Targets:
    """Targets that keep to one epsilon together, where every run is Gaussian in all: the squared
    shifts add up. The search's runs have a `share` of them together. All shifts are multiplied by
    `factor`, less than one where runs are no Gaussians.
    """
    whole = factor * gaussian_shift(target, delta)
    shifts = whole * sqrt(1 - share), whole * sqrt(share / n_searched)
    parts = (epsilon(((subsampled(1.0, shift), 1),), delta) for shift in shifts)
    return Targets(*(floor(1e6 * part) / 1e6 for part in parts))  # six digits, down
