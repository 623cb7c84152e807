"""The ledger of a plan that continues another one: each line counts the rounds of both.

A device's observers are matched by kind: nodes that stay are to each other what they were. Who is
of a kind that one plan has no line for may have been any observer there whom some noise is for: a
line each. One composition has the laws of all rounds, each over its plan's noise, at one delta. The
model that is gone on with follows from releases that were counted.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import inf
from typing import Any

from m2fdp.core.errors import InputError
from m2fdp.core.experiment.results import Calibration
from m2fdp.core.privacy.accounting import Unit
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.releases import Account, AlikeRounds, Past, Release
from m2fdp.experiment import Experiment


@dataclass(frozen=True)
class Continued(Account):
    """The account of rounds after one, as the line has them, and of those until then, as a former
    line had them in its ledger; None = the device is new."""

    until: int
    former: Release | None
    ledger: Ledger

    def behind(self, remaining: Callable[[float], float]) -> Account:
        """Of the former line, too, no more than a head's own noise is left where some is taken."""

        def both(at: Position, noise: float) -> float:
            return noise if noise == inf else min(noise, at.noise, remaining(noise))

        return replace(self, former=self.former and self.former.behind(both))

    def alone(self) -> Account:
        return replace(self, former=self.former and self.former.alone())

    def promised(
        self, lines: Sequence[Release], rounds: int, unit: Unit
    ) -> tuple[dict[str, Any], list[str]]:
        return {}, [f"rounds 1 to {self.until} were another plan's, whose ledger counts with this"]

    def ways(self, line: Release, past: Past) -> list[list[AlikeRounds]]:
        rounds_of = past.rounds_of.items()
        later = {
            plan: int(((self.until <= rounds) & (rounds < past.total)).sum())
            for plan, rounds in rounds_of
        }
        after = list(self.shown(line, replace(past, counted=Counter(later))))
        if self.former is None:
            return [after]
        before = self.ledger.ways(self.former, min(past.total, self.until))
        return [[*way, *after] for way in before]


def continued(
    ledger: Ledger, devices: Sequence[str], before: Ledger, former: Sequence[str], until: int
) -> Ledger:
    """A ledger whose lines count what another one had until a round; the names of both ones'
    devices, by index."""
    lines = list[Release]()
    was = {former[j]: its for its in _by_position(before) for j in _all(its)[0].position.members}
    for its in _by_position(ledger):
        alike = defaultdict[int, list[int]](list)
        for device in _all(its)[0].position.members:
            alike[id(was.get(devices[device]))].append(device)
        for members in alike.values():
            others = was.get(devices[members[0]], {})
            at = replace(_all(its)[0].position, members=tuple(members))
            for kind in dict.fromkeys((*its, *others)):
                earlier: list[Any] = others.get(kind, _behind_noise(others)) or [None]
                for now, then in product(its.get(kind, _behind_noise(its)), earlier):
                    spent = now.account.spent + (then.account.spent if then else 0.0)
                    account = Continued(until, then, before, spent=spent)
                    seen_by = then.observer if then and kind not in its else now.observer
                    lines.append(
                        replace(now, position=at, kind=kind, observer=seen_by, account=account)
                    )
    return replace(ledger, lines=tuple(lines))


def _by_position(ledger: Ledger) -> list[dict[str, list[Release]]]:
    """The lines of each position, by kind."""
    found = defaultdict[Position, dict[str, list[Release]]](dict)
    for line in ledger.lines:
        if type(line.account) not in (Account, Continued):
            problem = "is of releases that are counted by more than rounds; an amendment can't"
            raise InputError("plan: a line of the ledger", line.sees, f"{problem} compose them")
        found[line.position].setdefault(line.kind, []).append(line)
    return list(found.values())


def _all(of_kind: Mapping[str, list[Release]]) -> list[Release]:
    return [line for lines in of_kind.values() for line in lines]


def _behind_noise(of_kind: Mapping[str, list[Release]]) -> list[Release]:
    """All of them, but those in clear, whom the device trusts, where there are others."""
    lines = _all(of_kind)
    return [line for line in lines if line.deviation > 0] or lines


def continuing(
    kind: type[Experiment], before: Ledger, former: Sequence[str], until: int
) -> type[Experiment]:
    """A run of that kind, calibrated as if it were all, and accounted with what was before."""

    class Continuing(kind):  # type: ignore[misc, valid-type]
        @cached_property
        def calibration(self) -> Calibration:
            """See `m2fdp.core.experiment.assembly.Assembly`."""
            whole, names = super().calibration, self.plan.network.tree.names[-1]
            ledger = continued(whole.mechanism.ledger, names, before, former, until)
            mechanisms = tuple(replace(each, ledger=ledger) for each in whole.mechanisms)
            rounds = mechanisms[0].affordable_rounds(self.config.privacy.budget)
            return replace(whole, mechanisms=mechanisms, affordable_rounds=rounds)

    return Continuing
