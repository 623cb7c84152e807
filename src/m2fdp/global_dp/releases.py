"""Who learns what where models are bounded themselves: the ledger's lines under `weights`.

A device sends its model, clipped to C, with noise; an edge server sends its mean on, or broadcasts
it, with noise of its own; the cloud likewise. What a record, or a device, moves a model by is the
ball's diameter at most, 2C, whatever happened before: the argmin of a mean may jump by that when
one record changes. So every release has a shift and a noise of its own.

    who                         after a local aggregation         after a global one
    the own edge, uplinks       2C behind own_1                   2C behind own_2
    the cloud                   2C p behind V_1 + n_E^2           2C p behind V_2 + s_E^2
    siblings                    2C p behind V_1 - own + n_E^2     2C p q behind W - own
    downlinks, elsewhere        2C p behind V_1 + n_E^2           2C p q behind W

with p and q the weights of the device at its edge server and of this at the cloud, V the variance
of the noise in the edge server's mean, and W of all noise in the cloud's broadcast. Each
aggregation is a public reset for its observers: all below starts from a broadcast. The cloud and
others beyond the edge server see no local aggregations. Two ways count for them, both upper bounds.
Either they count as if they saw them. Or all devices of the edge server may part between two global
aggregations: their mean stays in the ball, and moves by 2C at most, 2C q in the cloud's.

For an observer that catches some of the messages no release is a reset. But in the ball each
message moves by 2C at most, whatever went by unseen, and so many compose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, sqrt

from m2fdp.core.privacy import sight
from m2fdp.core.privacy.accounting import Adjacency, Composition, ShiftLaw, subsampled
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import (
    Account,
    AlikeRounds,
    Laws,
    Past,
    Release,
    in_clear,
    trusted_above,
)
from m2fdp.core.privacy.sight import (
    COLLUDING,
    EVERY,
    NOBODY,
    NOTHING,
    SIBLINGS,
    Kind,
    Reading,
    readings,
)
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.global_dp.room import COALITION, DOWNLINKS_CAUGHT, UPLINKS_CAUGHT

_DECLARED = "so many as are declared"
TOGETHER = Kind(
    "devices of the same server, together",
    NOTHING,
    EVERY,
    COLLUDING,
    told=True,
    bound_with=SIBLINGS,
    counted=True,
)
ON_UPLINKS = Kind("who catches some uplinks", _DECLARED, NOTHING, NOBODY, True, counted=True)
ON_DOWNLINKS = Kind("who catches some downlinks", NOTHING, _DECLARED, NOBODY, True, counted=True)
# What a release shows: how far it moves, in 2C, and the variance of the noise about it.
Seen = tuple[float, float]
_AS_IF_SEEN = "as if its server's broadcasts were seen too, or as if all its devices had parted"
_ALONE = "siblings do not pool what they know of their own noises"
# Observers in the order of their lines.
_IN_ORDER = (
    "trusted_servers servers uplinks cloud siblings coalition far_devices public downlinks "
    "colluders"
)


@dataclass(frozen=True)
class ModelNoise:
    """The noise about a device's model in a tree of two tiers, in the model's own unit.

    Pairs are of a local aggregation at the device's edge server, and of a global one.

    Attributes:
        share: p, rho of the device at its edge server.
        edge_share: q, rho of the edge server at the cloud.
        own: deviations of the device's own noise.
        added: variances that the edge server adds to its broadcast, and to its message.
        mean: variances of the noise of all devices of the edge server in its mean.
        mean_but_one: the same less the loudest sibling's, who knows its own; None without siblings.
        mean_but_coalition: what the loudest siblings that tell each other leave of it.
        cloud: the variance that the cloud adds to its broadcast.
        total: the variance of all noise in what the cloud broadcasts.
        total_but_edge: what the cloud and all below other edge servers draw of that.
        total_but_far: what the loudest device elsewhere leaves of it; None without any.
        total_but_servers: what the untrusted servers elsewhere leave of it; None without any.
    """

    share: float
    edge_share: float
    own: tuple[float, float]
    added: tuple[float, float]
    mean: tuple[float, float]
    mean_but_one: tuple[float, float] | None
    mean_but_coalition: tuple[float, float]
    cloud: float
    total: float
    total_but_edge: float
    total_but_far: float | None
    total_but_servers: float | None


@dataclass(frozen=True)
class Ball:
    """How far a record of a position moves a clipped model.

    Attributes:
        rate: chance of a record to be in a step.
        adjacency: two worlds that replace a record part by 2C as well, by C from between them,
            which is what the accountant counts from.
        diameter: 2C.
        unit: the position's, in which shifts and noise are counted.
    """

    rate: float
    adjacency: Adjacency
    diameter: float
    unit: float

    def after(self, steps: float) -> ShiftLaw:
        """Of the model after so many steps from a public one, in 2C; of any, by inf steps."""
        if self.adjacency == "replace_one":
            return subsampled(1.0, 0.5)
        moved = 1.0 if steps == inf else 1.0 - (1.0 - self.rate) ** steps
        return subsampled(moved)

    def composition(self, plan: RoundPlan) -> Composition:
        """A device's own messages of a round, each moved by 2C."""
        laws = (self.after(last - first + 1) for first, last, _ in plan.stretches)
        return tuple(Counter(laws).items())

    def scaled(self, law: ShiftLaw, shift: float) -> ShiftLaw:
        """The law of what is moved by so much of 2C, in the unit."""
        return law.scaled(shift * self.diameter / self.unit)

    def deviation(self, variance: float) -> float:
        return sqrt(max(variance, 0.0)) / self.unit


@dataclass(frozen=True)
class EveryRelease:
    """A way to count what global, and shown local, aggregations show."""

    ball: Ball
    local: Seen | None
    total: Seen

    def shown(self, counted: Mapping[RoundPlan, int]) -> list[AlikeRounds]:
        """What is shown in so many rounds of each plan."""
        shown = []
        for plan, times in counted.items():
            ends = plan.stretches if self.local is not None else [(1, len(plan.layers), 0)]
            for top, seen in ((1, self.local), (0, self.total)):
                if seen is None:
                    continue
                shift, variance = seen
                laws = Counter(
                    self.ball.after(last - first + 1) for first, last, layer in ends if layer == top
                )
                moved = tuple((self.ball.scaled(law, shift), n) for law, n in laws.items())
                if moved:
                    shown.append(AlikeRounds(plan, moved, times, self.ball.deviation(variance)))
        return shown

    def least(self, local_there: bool) -> float:
        local = [self.local[1]] if self.local is not None and local_there else []
        return self.ball.deviation(min([*local, self.total[1]]))


@dataclass(frozen=True)
class SomeReleases:
    """A way to count releases that are caught, each moved by 2C: how many of them at most, and the
    variance of the noise about them, after local and after global aggregations."""

    ball: Ball
    local: tuple[int, float]
    total: tuple[int, float]

    def shown(self, counted: Mapping[RoundPlan, int]) -> list[AlikeRounds]:
        """What is caught of so many rounds of each plan."""
        shown = []
        moved = ((self.ball.scaled(self.ball.after(inf), 1.0), 1),)
        for top, (most, variance) in ((1, self.local), (0, self.total)):
            there = sum(plan.layers.count(top) * times for plan, times in counted.items())
            if times := min(most, there):
                deviation = self.ball.deviation(variance)
                shown.append(AlikeRounds(next(iter(counted)), moved, times, deviation))
        return shown


@dataclass(frozen=True)
class OfModels(Account):
    """The account of readers of clipped models. Releases differ in shift and noise, so there are
    several ways to count them; `on_path` is that of who knows all noise off the device's path."""

    counts: tuple[EveryRelease | SomeReleases, ...]
    on_path: EveryRelease

    @property
    def by_laws(self) -> bool:
        return False

    def alone(self) -> OfModels:
        return replace(self, counts=(self.on_path,))

    def ways(self, line: Release, past: Past) -> list[list[AlikeRounds]]:
        return [each.shown(past.counted) for each in self.counts]


@dataclass(frozen=True)
class ModelLines:
    """The lines of one position, put together; `laws` are for who reads all mechanisms alike."""

    premises: Premises
    position: Position
    noise: ModelNoise
    ball: Ball
    laws: Laws

    @property
    def edge_is_trusted(self) -> bool:
        return bool(self.position.parent_is_trusted or not self.position.is_device)

    def all(self) -> list[Release]:
        lines_of = {each.kind: self.of(each) for each in readings(self.premises, self.position)}
        colluding, noise = self.premises.threat.colluding, self.noise
        if colluding and noise.mean_but_one is not None:
            coalition = self.line(COALITION, self.beside(noise.mean_but_coalition))
            who = f"{colluding + 1} devices of the same server, together"
            lines_of[COALITION] = replace(coalition, observer=who)
        # What a room brings stands last.
        in_order = (lines_of.get(kind) for kind in dict.fromkeys([*_IN_ORDER.split(), *lines_of]))
        return [*(line for line in in_order if line is not None), *self.caught()]

    def of(self, reading: Reading) -> Release | None:
        """The line of an observer; None = there is none."""
        noise, kind, row = self.noise, reading.kind, reading.row
        if reading.at == "below":
            if row.up == sight.TO_TRUSTED:
                return trusted_above(self.position, kind, "clipped models", self.laws)
            if noise.own == (0.0, 0.0):
                clear = "un-noised models on their way to the edge server"
                return in_clear(self.position, kind, clear, self.laws)
            return self.line(kind, self.own())
        if row.drew == sight.COLLUDING:
            return self.line(kind, *(self.cloud() if self.edge_is_trusted else (self.own(),)))
        if row.up == sight.TO_CLOUD:
            return self.line(kind, *self.cloud(), rests=_AS_IF_SEEN)
        if reading.at == "head" and row.up != sight.NOTHING:
            return self.line(kind, self.own(), sees="the clipped model, noised, every time")
        if row.handed == sight.EVERY:
            alone = row.drew == sight.BESIDE
            mean = noise.mean_but_one if alone else noise.mean
            rests = _ALONE if alone else "–"
            return None if mean is None else self.line(kind, self.beside(mean), rests=rests)
        but = {sight.SERVERS: noise.total_but_servers, sight.ELSEWHERE: noise.total_but_far}
        total = but.get(row.drew, noise.total)
        return None if total is None else self.line(kind, *self.beyond(total), rests=_AS_IF_SEEN)

    def own(self) -> EveryRelease:
        local, total = self.noise.own
        return EveryRelease(self.ball, (1.0, local**2), (1.0, total**2))

    def cloud(self) -> tuple[EveryRelease, EveryRelease]:
        noise = self.noise
        local, total = (mean + added for mean, added in zip(noise.mean, noise.added, strict=True))
        return (
            EveryRelease(self.ball, (noise.share, local), (noise.share, total)),
            EveryRelease(self.ball, None, (1.0, total)),
        )

    def beside(self, mean: tuple[float, float]) -> EveryRelease:
        """Of the broadcasts of the edge server and of the cloud, behind so much of the noise in
        the edge server's mean."""
        noise = self.noise
        local, total = (left + added for left, added in zip(mean, noise.added, strict=True))
        total = noise.total_but_edge + noise.edge_share**2 * total
        return EveryRelease(
            self.ball, (noise.share, local), (noise.share * noise.edge_share, total)
        )

    def beyond(self, left: float) -> tuple[EveryRelease, EveryRelease]:
        """Of the cloud's broadcasts, behind so much of their noise."""
        noise = self.noise
        seen = noise.mean[0] + noise.added[0]
        return (
            EveryRelease(self.ball, (noise.share, seen), (noise.share * noise.edge_share, left)),
            EveryRelease(self.ball, None, (noise.edge_share, left)),
        )

    def caught(self) -> list[Release]:
        """Of who catches only so many messages as are declared: t_1…t_5."""
        noise, said = self.noise, self.premises.privacy.exposures
        lines = []
        # Those before a global aggregation may hold less noise: who catches uplinks says how many.
        if said.uplinks is not None and said.cloud_rounds is not None and not self.edge_is_trusted:
            at_cloud = said.cloud_rounds
            local, total = noise.own
            some = SomeReleases(
                self.ball, (said.uplinks - at_cloud, local**2), (at_cloud, total**2)
            )
            sees = f"{said.uplinks} of the device's uplinks, {at_cloud} of them to the cloud"
            lines.append(self.line(UPLINKS_CAUGHT, self.own(), some, sees=sees))
        if said.downlinks is not None and said.cloud_downlinks is not None:
            some = SomeReleases(
                self.ball,
                (said.downlinks, noise.mean[0] + noise.added[0]),
                (said.cloud_downlinks, noise.total),
            )
            sees = f"{said.downlinks} broadcasts of the server, {said.cloud_downlinks} of the cloud"
            lines.append(self.line(DOWNLINKS_CAUGHT, self.beside(noise.mean), some, sees=sees))
        return lines

    def line(
        self,
        kind: str,
        *counts: EveryRelease | SomeReleases,
        sees: str = "noised means of clipped models",
        rests: str = "–",
    ) -> Release:
        """Of an observer, by the ways to count what it is shown."""
        has_local = 1 in self.premises.tops
        leasts = [one.least(has_local) for one in counts if isinstance(one, EveryRelease)]
        who, account = sight.rows()[kind].words, OfModels(counts, self.alone(kind))
        return Release(
            self.position, kind, who, sees, max(leasts), rests, self.laws, account=account
        )

    def alone(self, kind: str) -> EveryRelease:
        """Of the noise on the device's own path alone, as if all other noise were told."""
        noise, reads = self.noise, sight.rows()[kind].up
        if reads not in (sight.NOTHING, sight.TO_CLOUD) and not self.edge_is_trusted:
            return self.own()
        share, at_cloud = noise.share, noise.edge_share
        local, total = (
            (share * deviation) ** 2 + added
            for deviation, added in zip(noise.own, noise.added, strict=True)
        )
        if reads not in (sight.TO_CLOUD, sight.TO_ITS_READER):
            broadcast = at_cloud**2 * total + noise.cloud
            return EveryRelease(self.ball, (share, local), (share * at_cloud, broadcast))
        return EveryRelease(
            self.ball, (share, local) if local else None, (share if local else 1.0, total)
        )
