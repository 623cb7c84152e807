"""The privacy ledger: for every position of a data owner, what every observer learns.

Positions are devices that share everything an accountant needs: where their noise is added,
their weights on the path below it, their sampling rate and their noise. Each observer of a
position is one line; what carries no noise is a line with an infinite epsilon, never dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from math import ceil, inf, log

import numpy as np
import pandas as pd

from m2fdp.config import PrivacyConfig, ThreatConfig
from m2fdp.errors import InputError
from m2fdp.privacy.accounting import Adjacency, Composition, ShiftLaw, epsilon, subsampled
from m2fdp.privacy.positions import Position, position_name, positions
from m2fdp.privacy.taint import RoundPlan, device_law, record_law, windows
from m2fdp.topology.network import Network

# Beyond so many step sizes their growths are rounded up to share laws, each of which takes time.
_MOST_STEP_SIZES = 8
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


def ledger_table(ledger: Ledger, rounds: int, conditions: Sequence[str] = ()) -> pd.DataFrame:
    """One row a line: who sees what of whom, how often, behind how much noise, and epsilon.

    `largest_shift` and `noise` share the unit that the mechanism's releases have. Where rounds
    differ in who takes part, they are those of the release whose shift is largest over its noise.

    Args:
        conditions: what every line rests on besides its own assumption.
    """
    rows = []
    for line in ledger.lines:
        position = line.position
        releases = 0
        worst = (0.0, 0.0, line.noise * position.unit)
        for plan, times in Counter(ledger.plans[:rounds]).items():
            seen_from, noise = line.views[plan.network]
            for law, count in ledger.laws(seen_from, plan):
                releases += count * times
                shift = law.largest * seen_from.unit
                ratio = law.largest / noise if noise else law.largest
                worst = max(worst, (ratio, shift, noise * seen_from.unit))
        _, largest_shift, noise = worst
        rows.append(
            {
                "position": position_name(position),
                "devices": len(position.members),
                "observer": line.observer,
                "kind": line.kind,
                "distrusted": line.kind in ledger.distrusted,
                "sees": line.sees,
                "releases": releases,
                "sampling_rate": position.sampling_rate,
                "largest_shift": largest_shift,
                "noise": noise,
                "epsilon": ledger.epsilon(line, rounds),
                "delta": ledger.delta,
                "adjacency": ledger.adjacency,
                "assumption": "; ".join([line.assumption, *conditions]).removeprefix("–; "),
            }
        )
    return pd.DataFrame(rows)


def epsilon_over_rounds(ledger: Ledger, rounds: int) -> pd.DataFrame:
    """Epsilon of every kind of observer after up to 12 numbers of rounds, a row each.

    Columns: round, then one a kind.
    """
    chosen = np.unique(np.geomspace(1, rounds, 12).round().astype(int))
    return pd.DataFrame([{"round": int(t), **ledger.by_kind(int(t))} for t in chosen])


def build_ledger(
    network: Network,
    rates: np.ndarray,
    noise: Sequence[np.ndarray],
    units: np.ndarray,
    plans: Sequence[RoundPlan],
    privacy: PrivacyConfig,
    threat: ThreatConfig,
) -> Ledger:
    """The ledger of a run.

    Args:
        rates: float64 (N_L,), q_j.
        noise: for layer l = 1…L, float64 (N_l,): the standard deviation that the node adds, to
            its messages under `upload` and to its group's gradients under `gradient`.
        units: float64 (N_L,): what shift 1 of a device's law means, in the unit of `noise`.
        plans: the rounds t = 1…T.

    Raises:
        InputError: nobody whom `threat` distrusts receives anything in this network.
    """
    gradient = privacy.mechanism == "gradient"
    synchronised = {
        layer
        for plan in set(plans)
        for layer in plan.layers
        if layer is not None and not privacy.downlink_noise
    }
    untrusted_servers = any(not trusted.all() for trusted in network.trust[1:])
    lines = [
        line
        for position in positions(network, rates, noise, units)
        for line in (
            _gradient_lines(position)
            if gradient
            else _upload_lines(
                position,
                max(synchronised, default=0) >= position.head_layer,
                untrusted_servers,
            )
        )
    ]
    distrusted = distrusted_kinds(threat)
    present = {line.kind for line in lines}
    if not distrusted & present:
        raise InputError(
            "threat.distrusted",
            ", ".join(sorted(distrusted)),
            "are nobody in this network, so that there is nothing to verify; present are "
            + ", ".join(sorted(present - {"trusted_servers"})),
        )
    step_sizes = {plan.step_size for plan in plans}
    upload_laws = partial(_upload_laws, share_laws=len(step_sizes) > _MOST_STEP_SIZES)
    laws = _gradient_laws if gradient else upload_laws
    return Ledger(
        tuple(lines),
        lru_cache(maxsize=None)(partial(laws, privacy=privacy)),
        tuple(plans),
        distrusted,
        privacy.delta,
        privacy.adjacency,
    )


def open_ledger(
    n_devices: int, plans: Sequence[RoundPlan], privacy: PrivacyConfig, threat: ThreatConfig
) -> Ledger:
    """The ledger of a run without noise: everybody sees everything in clear."""
    position = Position(tuple(range(n_devices)), 0, True, (), 1.0, 1.0, 0.0, 0.0, None, False)
    lines = tuple(
        Line(position, who, kind, "un-noised models", 0.0, "–") for kind, who in _EVERYBODY.items()
    )
    return Ledger(
        lines,
        lambda position, plan: ((subsampled(1.0), 1),),
        tuple(plans),
        distrusted_kinds(threat),
        privacy.delta,
        privacy.adjacency,
    )


def distrusted_kinds(threat: ThreatConfig) -> frozenset[str]:
    """The kinds of observers that a threat model distrusts."""
    return frozenset([*threat.distrusted, *threat.open_links])


_EVERYBODY = {
    "servers": "untrusted servers",
    "cloud": "the cloud",
    "siblings": "devices of the same server",
    "far_devices": "devices elsewhere",
    "public": "anyone with the final model",
    "uplinks": "eavesdropper on uplinks",
    "downlinks": "eavesdropper on downlinks",
}


def _gradient_laws(position: Position, plan: RoundPlan, privacy: PrivacyConfig) -> Composition:
    """One release a local step."""
    rate = 1.0 if privacy.unit == "device" else position.sampling_rate
    return ((subsampled(rate), len(plan.layers)),)


def _upload_laws(
    position: Position, plan: RoundPlan, privacy: PrivacyConfig, share_laws: bool
) -> Composition:
    """One release a window; `share_laws` where so many step sizes would make as many laws."""
    spread = plan.step_size * (privacy.smoothness or 0.0)
    growth = 1.0 + (_rounded_up(spread) if share_laws else spread)
    laws: Counter[ShiftLaw] = Counter()
    for window in windows(plan, position.head_layer, privacy.downlink_noise):
        if privacy.unit == "device":
            laws[device_law(window, position.head_layer, position.shares)] += 1
        else:
            laws[
                record_law(
                    window,
                    position.head_layer,
                    position.shares,
                    position.sampling_rate,
                    privacy.drift,
                    growth,
                )
            ] += 1
    return tuple(laws.items())


def _rounded_up(growth: float) -> float:
    """To the next power of 1.2, so that decaying step sizes share their laws."""
    return 1.2 ** ceil(log(growth, 1.2) - 1e-9) if growth > 0 else 0.0


def _gradient_lines(position: Position) -> list[Line]:
    """Under `gradient` all that leaves the head is computed from its noised gradients."""
    noised = "what follows from every step's noised gradient"
    rests = "as if every noised gradient were seen"

    def line(kind: str) -> Line:
        if kind == "uplinks" and not position.is_device:
            return _in_clear(position, kind, "clipped gradients on their way to the head")
        return Line(position, _EVERYBODY[kind], kind, noised, position.noise, rests)

    lines = [line(kind) for kind in _EVERYBODY]
    return lines if position.is_device else [*lines, _trusted(position, "clipped gradients")]


def _upload_lines(position: Position, synchronised: bool, untrusted_servers: bool) -> list[Line]:
    """Who sees which message at the end of a window.

    Args:
        synchronised: whether devices below the head receive un-noised local aggregations.
        untrusted_servers: whether the network has any; they hand every broadcast on.
    """
    above = "cloud" if position.parent_is_cloud else "servers"
    parent = "the cloud, its parent" if position.parent_is_cloud else "its untrusted parent"
    rests = "as if the parent's mean were seen at every release"

    def behind_own(kind: str, who: str) -> Line:
        return Line(position, who, kind, "the noised model at every release", position.noise, "–")

    def behind_crowd(kind: str, noise: float = position.crowd, assumption: str = rests) -> Line:
        seen = "the noised mean of the parent's children"
        return Line(position, _EVERYBODY[kind], kind, seen, noise, assumption)

    lines = [behind_own(above, parent)]
    if not position.parent_is_cloud:
        lines.append(behind_crowd("cloud"))
    elif untrusted_servers:
        lines.append(behind_crowd("servers"))
    if not (position.is_device and position.parent_is_cloud):  # in a star all are siblings
        lines.append(behind_crowd("far_devices"))
    lines.append(behind_crowd("public"))
    if position.is_device:
        if position.crowd_without_one is not None:
            alone = "siblings do not pool what they know of their own noises"
            lines.append(behind_crowd("siblings", position.crowd_without_one, alone))
        lines += [behind_own("uplinks", _EVERYBODY["uplinks"]), behind_crowd("downlinks")]
        return lines
    for kind in ("siblings", "downlinks"):
        if synchronised:
            lines.append(_in_clear(position, kind, "un-noised local aggregations"))
        else:
            lines.append(behind_own(kind, _EVERYBODY[kind]))
    lines.append(_in_clear(position, "uplinks", "un-noised models on their way to the head"))
    return [*lines, _trusted(position, "un-noised models")]


def _in_clear(position: Position, kind: str, sees: str) -> Line:
    return Line(position, _EVERYBODY[kind], kind, sees, 0.0, "–")


def _trusted(position: Position, sees: str) -> Line:
    kind, who = "trusted_servers", "the trusted servers above"
    return Line(position, who, kind, sees, 0.0, "trusted by declaration")


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
