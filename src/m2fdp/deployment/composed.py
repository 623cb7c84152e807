"""The ledger of a plan that continues another one: each line counts the rounds of both.

A device's observers are matched by kind: nodes that stay are to each other what they were. Who is
of a kind that one plan has no line for (a new device, or one that has left) counts there as the
observer that learns most. One composition has the laws of all rounds, each over its plan's noise,
at one delta. The model that is gone on with follows from releases that were counted.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
    total, lines = len(ledger.plans), list[Release]()
    was = {former[j]: its for its in _by_position(before) for j in _members(its)}
    for its in _by_position(ledger):
        alike = defaultdict[int, list[int]](list)
        for device in _members(its):
            alike[id(was.get(devices[device]))].append(device)
        for members in alike.values():
            others = was.get(devices[members[0]], {})
            at = replace(next(iter(its.values())).position, members=tuple(members))
            for kind in dict.fromkeys((*its, *others)):
                now = its.get(kind) or _worst(its.values(), ledger, total)
                then = others.get(kind) or _worst(others.values(), before, until)
                spent = now.account.spent + (then.account.spent if then else 0.0)
                account = Continued(until, then, before, spent=spent)
                seen_by = then.observer if then and kind not in its else now.observer
                lines.append(
                    replace(now, position=at, kind=kind, observer=seen_by, account=account)
                )
    return replace(ledger, lines=tuple(lines))


def _by_position(ledger: Ledger) -> list[dict[str, Release]]:
    """The lines of each position, by kind."""
    found = defaultdict[Position, dict[str, Release]](dict)
    for line in ledger.lines:
        if type(line.account) not in (Account, Continued) or line.kind in found[line.position]:
            problem = "is of releases that are counted by more than rounds; an amendment can't"
            raise InputError("plan: a line of the ledger", line.sees, f"{problem} compose them")
        found[line.position][line.kind] = line
    return list(found.values())


def _members(of_kind: Mapping[str, Release]) -> tuple[int, ...]:
    return next(iter(of_kind.values())).position.members


def _worst(lines: Iterable[Release], ledger: Ledger, rounds: int) -> Any:
    """Of all whom some noise is there for; None = there are no lines."""
    return max(
        lines, key=lambda line: (line.deviation > 0, ledger.epsilon(line, rounds)), default=None
    )


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
