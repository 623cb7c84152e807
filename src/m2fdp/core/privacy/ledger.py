"""The privacy ledger: for every position of a data owner, a line for what each observer learns
(`m2fdp.core.privacy.releases`). What carries no noise has an infinite epsilon and is never dropped.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import inf

import numpy as np
import pandas as pd

from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.accounting import (
    Adjacency,
    Composition,
    ShiftLaw,
    Unit,
    epsilon,
    subsampled,
)
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.privacy.positions import Position, position_name
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import AlikeRounds, Past, Release, in_clear
from m2fdp.core.privacy.sight import (
    distrusted_kinds,
    kinds_of_rooms,
    observers,
    possible_kinds,
    rows,
)
from m2fdp.core.rooms import brought
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network

# A law that moves the release for certain, without noise.
_CERTAIN = ShiftLaw((inf,), (1.0,))


@dataclass(frozen=True, eq=False)
class Ledger:
    """All lines of a run.

    Attributes:
        plans: the rounds t = 1…T, in order.
        distrusted: the kinds of observers that must not learn more than the target, there or not.
    """

    lines: tuple[Release, ...]
    plans: tuple[RoundPlan, ...]
    distrusted: frozenset[str]
    delta: float
    adjacency: Adjacency
    unit: Unit

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of observers that have lines."""
        return frozenset(line.kind for line in self.lines)

    @cached_property
    def bound(self) -> frozenset[str]:
        """The distrusted kinds that have lines: the promise binds them."""
        return self.distrusted & self.kinds

    def epsilon(self, line: Release, rounds: int) -> float:
        """An upper bound on the line's epsilon after some rounds."""
        composition = self.composition(line, rounds)
        return line.account.spent + epsilon(composition, self.delta, self.adjacency)

    def verified(self, rounds: int) -> float:
        """The largest epsilon over records and distrusted observers after some rounds."""
        return self._largest((line for line in self.lines if line.kind in self.bound), rounds)

    def pooled(self, rounds: int) -> float:
        """The largest epsilon over records if all distrusted observers pool what they know.

        Only the head knows its noise, so its noise is left. Exceptions: an observer that sees
        messages in clear, and observers that read nothing but a sum and draw none of it.
        """
        draw_some = any(rows()[kind].is_device for kind in self.distrusted)

        def left(position: Position, deviation: float) -> float:
            only_sums = position.summed and not (position.drawn_by_devices and draw_some)
            return deviation if only_sums or not deviation else position.noise

        bound = (line for line in self.lines if line.kind in self.bound)
        return self._largest((line.behind(left).alone() for line in bound), rounds)

    def by_kind(self, rounds: int) -> dict[str, float]:
        """The largest epsilon of each kind of observer after some rounds."""
        of_kind = defaultdict[str, list[Release]](list)
        for line in self.lines:
            of_kind[line.kind].append(line)
        return {kind: self._largest(lines, rounds) for kind, lines in of_kind.items()}

    def composition(self, line: Release, rounds: int) -> Composition:
        """What the observer sees in so many rounds, over the noise."""
        return _over_noise(self.released(line, rounds))

    def released(self, line: Release, rounds: int) -> list[AlikeRounds]:
        """What an observer is shown in so many rounds, counted the way with least epsilon."""
        ways = self.ways(line, rounds)
        if len(ways) == 1:
            return ways[0]
        return min(ways, key=lambda way: epsilon(_over_noise(way), self.delta, self.adjacency))

    def ways(self, line: Release, rounds: int) -> list[list[AlikeRounds]]:
        """See `Account.ways`."""
        return line.account.ways(line, self.past(rounds))

    def past(self, rounds: int) -> Past:
        """The first rounds of the run."""
        counted, rounds_of = self._counted
        return Past(rounds, counted[rounds], rounds_of, self.adjacency, self.unit)

    def _largest(self, lines: Iterable[Release], rounds: int) -> float:
        """Of the observers of a position, who all see one law, those with least noise matter."""
        alike = defaultdict[tuple[object, ...], dict[tuple[float, ...], Release]](dict)
        for line in lines:
            counted = line.account.behind(lambda noise: 1.0)
            alike[line.position, line.laws, line.joins_unseen, counted][line.noises] = line
        compositions = defaultdict[float, set[Composition]](set)
        for by_noise in alike.values():
            for noises, line in by_noise.items():
                if not any(_quieter(other, noises) for other in by_noise):
                    compositions[line.account.spent].add(self.composition(line, rounds))
        epsilons = (
            spent + epsilon(each, self.delta, self.adjacency)
            for spent, noised in compositions.items()
            for each in undominated(noised)
        )
        return max(epsilons, default=0.0)

    @cached_property
    def _counted(self) -> tuple[list[Counter[RoundPlan]], dict[RoundPlan, np.ndarray]]:
        """How often each plan has occurred after t = 0…T rounds, and its rounds, from 0."""
        counts, rounds_of = [Counter[RoundPlan]()], defaultdict[RoundPlan, list[int]](list)
        for round_, plan in enumerate(self.plans):
            counts.append(counts[-1] + Counter([plan]))
            rounds_of[plan].append(round_)
        return counts, {plan: np.array(rounds) for plan, rounds in rounds_of.items()}


def _over_noise(rounds: Iterable[AlikeRounds]) -> Composition:
    """What an observer is shown, over the noise that it can't subtract."""
    sums: Counter[ShiftLaw] = Counter()
    for alike in rounds:
        if alike.deviation == inf:
            continue
        for law, count in alike.laws:
            if alike.deviation:
                law = law.scaled(1.0 / alike.deviation)
            elif law.largest:  # what nothing moves shows nothing, noised or not
                law = _CERTAIN
            sums[law] += count * alike.times
    return tuple(sums.items())


def _quieter(noises: tuple[float, ...], others: tuple[float, ...]) -> bool:
    """Whether noises are nowhere more, and somewhere less."""
    return noises != others and all(a <= b for a, b in zip(noises, others, strict=True))


def build_ledger(premises: Premises, noise: Sequence[np.ndarray], units: np.ndarray) -> Ledger:
    """The ledger of a run, or an `InputError` if nobody whom `threat` distrusts is in the network.

    Args:
        noise: the standard deviation that each node adds, when the mechanism has it add some:
            float64 (N_l,) for layer l = 0…L.
        units: float64 (N_L,): what shift 1 of a device's law means, in the unit of `noise`.
    """
    privacy, threat = premises.privacy, premises.threat
    mechanism = get_mechanism(privacy.mechanism)
    lines = mechanism.releases(premises, noise, units, cache(mechanism.laws(premises)))
    for amended in brought("lines"):
        lines = amended(premises, lines)
    distrusted = distrusted_kinds(threat, premises.network)
    promised = privacy.delta, privacy.adjacency, privacy.unit
    ledger = Ledger(tuple(lines), tuple(premises.plans), distrusted, *promised)
    if not ledger.bound:
        named = ", ".join([*threat.distrusted, *threat.open_links])
        problem = "are nobody in this network, so that there is nothing to verify; present are "
        problem += ", ".join(sorted(ledger.kinds & observers().keys()))
        raise InputError("threat.distrusted", named, problem)
    if silent := sorted(kinds_of_rooms() & set(threat.distrusted) - ledger.kinds):
        problem = "is distrusted, and no line says what it learns; its room brings one (Room.lines)"
        raise InputError("threat.distrusted", silent[0], problem)
    return ledger


def behind_own_heads(ledger: Ledger) -> Ledger:
    """The ledger of steps that a head noises and a rule post-processes. Nobody learns more than a
    reader of the head's steps. The rule may change others' noise, so it counts for nothing."""

    def behind(position: Position, deviation: float) -> float:
        return deviation if deviation == inf else min(deviation, position.noise)

    return replace(ledger, lines=tuple(line.behind(behind).alone() for line in ledger.lines))


def open_ledger(
    network: Network, plans: Sequence[RoundPlan], privacy: PrivacyConfig, threat: ThreatConfig
) -> Ledger:
    """The ledger of a run without noise: everybody sees everything in clear."""
    uncounted, members = replace(network, participation=None), range(network.tree.n_devices)
    everybody = Position(uncounted, tuple(members), 0, (), 1.0, 1.0, 0.0, {}, {}, ())
    lines = [
        in_clear(everybody, kind, "un-noised models", lambda *_: ((subsampled(1.0), 1),))
        for kind in possible_kinds(network, threat)
    ]
    promised = privacy.delta, privacy.adjacency, privacy.unit
    return Ledger(tuple(lines), tuple(plans), distrusted_kinds(threat, network), *promised)


def joint_ledger(ledgers: Sequence[Ledger]) -> Ledger:
    """One ledger of a run over several networks, from the whole run's ledger in each.

    The networks differ in who takes part, so every device has the same kinds of observers in
    all. Devices share a line where they share a position in every network.
    """
    if len(ledgers) == 1:
        return ledgers[0]
    of_networks = [defaultdict[Position, dict[str, Release]](dict) for _ in ledgers]
    of_devices = defaultdict[int, list[Position]](list)
    for lines, ledger in zip(of_networks, ledgers, strict=True):
        for line in ledger.lines:
            lines[line.position][line.kind] = line
        for position in lines:
            for device in position.members:
                of_devices[device].append(position)
    groups = defaultdict[tuple[Position, ...], list[int]](list)
    for device, its_positions in sorted(of_devices.items()):
        groups[tuple(its_positions)].append(device)
    joined = []
    for (first, *others), devices in groups.items():
        position = replace(first, members=tuple(devices))
        for kind, line in of_networks[0][first].items():
            seen = zip(others, of_networks[1:], strict=True)
            elsewhere = tuple((other, lines[other][kind].deviation) for other, lines in seen)
            joined.append(replace(line, position=position, elsewhere=elsewhere))
    return replace(ledgers[0], lines=tuple(joined))


def undominated(compositions: set[Composition]) -> list[Composition]:
    """Without the subsampled ones that another, of more samples and less noise, dominates."""
    result, by_count = [], defaultdict[int, list[Composition]](list)
    for composition in compositions:
        (law, count), *others = composition or ((_CERTAIN, 0),)
        some = law.shifts[1:] if law.shifts[0] == 0 else law.shifts
        if composition and not others and len(some) == 1 and some[0] < inf:
            by_count[count].append(composition)  # no shift or, with some probability, one
        else:
            result.append(composition)
    for group in by_count.values():
        largest = 0.0
        for composition in sorted(group, key=lambda c: (-c[0][0].moved, -c[0][0].largest)):
            if composition[0][0].largest > largest:
                largest = composition[0][0].largest
                result.append(composition)
    return result


def ledger_table(ledger: Ledger, rounds: int, conditions: Sequence[str] = ()) -> pd.DataFrame:
    """One row a line: who sees what of whom, how often, behind how much noise, and epsilon.

    `largest_shift` and `noise` share the unit that the mechanism's releases have. Where rounds
    differ in who takes part, they are those of the release whose shift is largest over its noise.

    Args:
        conditions: what every line rests on besides its own assumption.
    """
    rows = []
    for line in ledger.lines:
        position, releases = line.position, 0
        worst = (0.0, 0.0, line.deviation * position.unit)
        shown = ledger.released(line, rounds)
        for alike in shown:
            unit, noise = line.views[alike.plan.network][0].unit, alike.deviation
            for law, count in alike.laws:
                releases += count * alike.times
                ratio = law.largest / noise if noise else law.largest
                worst = max(worst, (ratio, law.largest * unit, noise * unit))
        _, largest_shift, noise = worst
        unseen = any(alike.joins_unseen for alike in shown)
        chance = (position.joins or 1.0) if unseen else 1.0
        words = line.account.words(line, shown, ledger.past(rounds))
        rows.append(
            {
                "position": position_name(position),
                "devices": len(position.members),
                "observer": line.observer,
                "kind": line.kind,
                "distrusted": line.kind in ledger.distrusted,
                "sees": line.sees,
                "releases": releases,
                "sampling_rate": position.sampling_rate * chance,
                "largest_shift": largest_shift,
                "noise": noise,
                "epsilon": ledger.epsilon(line, rounds),
                "delta": ledger.delta,
                "adjacency": ledger.adjacency,
                "assumption": "; ".join([line.assumption, *words, *conditions]).removeprefix("–; "),
            }
        )
    return pd.DataFrame(rows)


def epsilon_over_rounds(ledger: Ledger, rounds: int) -> pd.DataFrame:
    """Epsilon of every kind of observer after up to 12 numbers of rounds: a row a `round`, a column
    a kind."""
    chosen = np.unique(np.geomspace(1, rounds, 12).round().astype(int))
    return pd.DataFrame([{"round": int(t), **ledger.by_kind(int(t))} for t in chosen])
