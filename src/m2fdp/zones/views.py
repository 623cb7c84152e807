"""Zones (H): what every observer learns, whoever is trusted, beside what H's formula says.

Below a cloud lie zones, each a super-node with its devices; any of them may add noise (H Sec. V,
C1 to C7). H takes the noise of all adders together, V times one adder's variance in the global sum,
and says epsilon / sqrt(V), or epsilon / V with secure aggregation. At most somebody who reads
broadcasts alone could be told that. By the one rule of the ledger (`m2fdp.core.privacy.releases`)
an observer learns from the lowest message of a device that it can read, behind the noise in it that
it did not draw itself.

Devices that join rounds by chance are hidden among those who might have, from observers who are
never told, unless noise of their own comes with them and shows it. Others count the rounds that a
device joined. Where not all are there in every round, the noise of those who are there counts. An
observer among them takes its own noise back from that round's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf

import numpy as np
import pandas as pd

from m2fdp.core.privacy.accounting import Adjacency, Composition, epsilon, scaled
from m2fdp.core.privacy.ledger import undominated
from m2fdp.core.privacy.releases import WORDS
from m2fdp.core.privacy.sight import AT_CLOUD, ON_LINKS, PUBLIC, READS, TO_SERVERS, message_in
from m2fdp.core.privacy.variance import with_quietest
from m2fdp.core.topology.network import OPEN, SecureSums


@dataclass(frozen=True, eq=False)
class Zones:
    """Who adds how much noise, and what a device moves.

    Attributes:
        zone_of: int64 (n,), each device's zone.
        device_weights: float64 (n,), of a device's message in its zone's.
        zone_weights: float64 (s,), of a zone's message in the global one.
        moves: float64 (n,), the most that a device, or its record, moves its own message by.
        devices: float64 (n,), the deviations that devices add to their messages.
        super_nodes: float64 (s,), that super-nodes add to theirs.
        cloud: that the cloud adds to what it broadcasts.
        on_line: float64 (n,), how often each device takes part.
        attendance: who is in which round, bool (R, n), where not all are in every one, and the
            variance that each device there adds to its zone's sum for certain, as the others may
            count on it, float64 (n,); None = all are, with what they add.
        elected: whether super-nodes are devices of the zone, who draw what it adds.
        sums: which messages of devices (2) and super-nodes (1) are read as sums only.
        colluding: how many devices, or super-nodes, pool what they know.
        shown: bool (n,), the devices known above their zone to have joined; None = noise adders.
    """

    zone_of: np.ndarray
    device_weights: np.ndarray
    zone_weights: np.ndarray
    moves: np.ndarray
    devices: np.ndarray
    super_nodes: np.ndarray
    cloud: float
    on_line: np.ndarray
    attendance: tuple[np.ndarray, np.ndarray] | None = None
    elected: bool = False
    sums: SecureSums = OPEN
    colluding: int = 0
    shown: np.ndarray | None = None

    @cached_property
    def in_zone(self) -> np.ndarray:
        """float64 (n,), the variance that each device adds to its zone's sum when it is there."""
        return (self.device_weights * self.devices) ** 2

    @cached_property
    def to_cloud(self) -> np.ndarray:
        """float64 (s,), what variance in a zone's sum is in the global one."""
        return self.zone_weights**2

    @cached_property
    def of_super_nodes(self) -> np.ndarray:
        """float64 (s,), the variance that each super-node adds to the global sum."""
        return self.to_cloud * self.super_nodes**2

    @cached_property
    def of_servers(self) -> float:
        """The variance that super-nodes and the cloud add to what the cloud broadcasts."""
        return float(self.of_super_nodes.sum() + self.cloud**2)

    @cached_property
    def global_weights(self) -> np.ndarray:
        """float64 (n,), of each device's message in the global sum."""
        return self.device_weights * self.zone_weights[self.zone_of]

    @cached_property
    def multipliers(self) -> tuple[np.ndarray, np.ndarray, float]:
        """What devices, super-nodes and the cloud add, over what a device moves their message by
        at most: (n,), (s,), and a number."""
        at_zone = np.zeros(len(self.zone_weights))
        np.maximum.at(at_zone, self.zone_of, self.device_weights * self.moves)
        at_cloud = float((self.zone_weights * at_zone).max())
        return self.devices / self.moves, self.super_nodes / at_zone, self.cloud / at_cloud

    def adders(self, one: float) -> float:
        """V: the noise in the global sum in units of one adder's variance, each adder's as it is
        over what a device moves its message by; `one` is an adder's noise over that."""
        devices, super_nodes, cloud = self.multipliers
        total = self.on_line @ devices**2 + (super_nodes**2).sum() + cloud**2
        return float(total) / one**2

    @cached_property
    def case(self) -> str:
        """H's name of the case, or a dash where nobody adds noise."""
        devices, super_nodes = bool(self.devices.any()), bool(self.super_nodes.any())
        return _CASES.get((devices, super_nodes, self.cloud > 0), "–")


# By whether devices, super-nodes and the cloud add noise (H Table I and the text of Sec. V).
_CASES = {
    (True, False, False): "C1",
    (False, True, False): "C2",
    (True, True, False): "C3",
    (False, False, True): "C4",
    (True, False, True): "C5",
    (False, True, True): "C6",
    (True, True, True): "C7",
}


@dataclass(frozen=True)
class Releases:
    """A device's releases over a run, in units of its shift: for observers who are told the rounds
    that it joins, and for observers who are not."""

    told: Composition
    unseen: Composition

    def behind(self, noise: float, told: bool) -> Composition:
        """What an observer sees, in units of so much noise, more than 0, over the shift."""
        return scaled(self.told if told else self.unseen, 1.0 / noise)


@dataclass(frozen=True, eq=False)
class View:
    """What one kind of observer reads of each device.

    Attributes:
        observer: who, in words.
        sees: the lowest message that it can read of a device's.
        variance: float64 (n,), of the noise in it that the observer did not draw; NaN for devices
            that it is not there for.
        weights: float64 (n,), of the device's message in it.
        told: bool (n,), whether the observer knows in which rounds the device took part.
    """

    observer: str
    sees: str
    variance: np.ndarray
    weights: np.ndarray
    told: np.ndarray


@dataclass(frozen=True, eq=False)
class _Round:
    """The devices' noise in a round, as each may count on it when it is there: the variance
    float64 (n,) that each adds to its zone's sum for certain."""

    zones: Zones
    others: np.ndarray

    @cached_property
    def beside(self) -> np.ndarray:
        """float64 (n,), what a device adds to its zone's sum besides what others may count on."""
        return self.zones.in_zone - self.others

    @cached_property
    def sums(self) -> np.ndarray:
        """float64 (s,), of the zones."""
        return np.bincount(self.zones.zone_of, self.others, minlength=len(self.zones.zone_weights))

    @cached_property
    def in_zone(self) -> np.ndarray:
        """float64 (n,), the variance in the sum of the device's zone."""
        return self.sums[self.zones.zone_of] + self.beside

    @cached_property
    def in_all(self) -> np.ndarray:
        """float64 (n,), the variance in the sum over the zones."""
        zones = self.zones
        return float(zones.to_cloud @ self.sums) + zones.to_cloud[zones.zone_of] * self.beside

    def known(self, count: int) -> np.ndarray:
        """float64 (n,), what so many of the other devices of a device's zone, the loudest, drew of
        the variance in its sum; NaN where there is none."""
        if not count:
            return np.zeros_like(self.others)
        zone_of = self.zones.zone_of
        others = np.bincount(zone_of)[zone_of] - 1
        left = with_quietest(zone_of, self.others, others - count) + self.beside
        return np.where(others > 0, self.in_zone - left, np.nan)

    @cached_property
    def loudest_elsewhere(self) -> np.ndarray:
        """float64 (n,), the most that one device of another zone knows of the variance in the sum
        over the zones, what it adds as an elected super-node too; NaN where there is none."""
        zones = self.zones
        loudest = np.zeros(len(zones.zone_weights))
        np.maximum.at(loudest, zones.zone_of, self.others)
        loudest = zones.to_cloud * loudest + (zones.of_super_nodes if zones.elected else 0.0)
        if len(loudest) < 2:
            return np.full(len(zones.zone_of), np.nan)
        second, first = np.argsort(loudest, kind="stable")[-2:]
        of_zone = np.where(np.arange(len(loudest)) == first, loudest[second], loudest[first])
        return of_zone[zones.zone_of]


def views(zones: Zones) -> list[View]:
    """Every observer, whoever is trusted: at the super-node, at the cloud, on links, and beyond.

    Where not all devices are there in every round, the round with the least noise counts: of the
    device's rounds, or of all rounds if the observer does not know the device's. An observer that
    may read the device without any noise knows them.
    """
    if zones.attendance is None:
        return _views_of(_Round(zones, zones.in_zone))
    attendance, others = zones.attendance
    in_any_round = in_its_rounds = np.array(inf)
    for present in attendance:
        views_of_round = _views_of(_Round(zones, np.where(present, others, 0.0)))
        variances = np.stack([view.variance for view in views_of_round])
        in_any_round = np.minimum(in_any_round, variances)
        counts = present | np.isnan(variances)
        in_its_rounds = np.minimum(in_its_rounds, np.where(counts, variances, inf))
    result = []
    for view, in_any, in_its in zip(views_of_round, in_any_round, in_its_rounds, strict=True):
        told = view.told | (in_any == 0)
        result.append(replace(view, variance=np.where(told, in_its, in_any), told=told))
    return result


def _views_of(its_round: _Round) -> list[View]:
    zones = its_round.zones
    weights = zones.global_weights
    shows = zones.devices > 0 if zones.shown is None else zones.shown
    always = np.ones_like(shows)
    heard = READS[ON_LINKS](message_in(zones.sums, 2))
    sent = (_MESSAGE, zones.in_zone) if heard else (WORDS, np.full_like(weights, inf))
    broadcast = its_round.in_all + zones.of_servers
    peers = broadcast - zones.to_cloud[zones.zone_of] * its_round.known(1)
    far = broadcast - its_round.loudest_elsewhere
    result = [
        _at_the_super_node(its_round, "super-node", 0),
        _at_the_super_node(its_round, "elected super-node", 1),
        *_at_the_cloud(its_round, shows),
        View("listener between device and super-node", *sent, zones.device_weights, always),
        View("devices of the zone", _BROADCAST, peers, weights, always),
        View("devices elsewhere", _BROADCAST, far, weights, shows),
        View(PUBLIC, _BROADCAST, broadcast, weights, shows),
    ]
    if zones.colluding:
        who = f"super-node with {zones.colluding} devices of the zone"
        result.append(_at_the_super_node(its_round, who, zones.colluding))
    return result


_BROADCAST, _MESSAGE = "the broadcast", "the device's message"
_UPPER_LINK = "listener between super-node and cloud"


def _at_the_super_node(its_round: _Round, observer: str, knows: int) -> View:
    """Somebody in its place, who knows what so many devices drew, the loudest but the owner."""
    zones, known = its_round.zones, its_round.known(knows)
    weights, told = zones.device_weights, np.ones(len(known), dtype=bool)
    sent = message_in(zones.sums, 2)
    if not READS[TO_SERVERS](sent):  # it is handed every broadcast, and knows what it added itself
        drawn = zones.to_cloud[zones.zone_of] * known + zones.of_super_nodes[zones.zone_of]
        variance = its_round.in_all + zones.of_servers - drawn
        return View(observer, f"{WORDS}, and broadcasts", variance, zones.global_weights, told)
    if sent.form == "alone":
        return View(observer, _MESSAGE, zones.in_zone, weights, told)
    sees = "the sum of the zone's messages"
    return View(observer, sees, its_round.in_zone - known, weights, told)


def _at_the_cloud(its_round: _Round, shows: np.ndarray) -> list[View]:
    """The cloud, alone and with super-nodes of other zones, and who listens below it."""
    zones, of_zone = its_round.zones, its_round.zones.zone_of
    weights = zones.global_weights
    if READS[ON_LINKS](message_in(zones.sums, 1)):
        variance = its_round.in_zone + (zones.super_nodes**2)[of_zone]
        zone_message = ("the zone's message", variance, zones.device_weights, shows)
        return [View(observer, *zone_message) for observer in (AT_CLOUD, _UPPER_LINK)]
    sees = "the sum over all zones"
    variance = its_round.in_all + float(zones.of_super_nodes.sum())
    result = [
        View(AT_CLOUD, sees, variance, weights, shows),
        View(_UPPER_LINK, WORDS, np.full_like(weights, inf), weights, shows),
    ]
    if zones.colluding and 1 in zones.sums.layers:
        drawn = zones.of_super_nodes
        others = np.full(len(drawn), len(drawn) - 1)
        quietest = with_quietest(np.zeros_like(others), drawn, others - zones.colluding)
        variance = its_round.in_all + np.where(others > 0, quietest, np.nan)[of_zone]
        who = f"cloud with {zones.colluding} super-nodes of other zones"
        result.append(View(who, sees, variance, weights, shows))
    return result


# Columns of `zone_epsilons`.
LEARNED = (
    "observer",
    "sees",
    "about",
    "devices",
    "rounds_known",
    "noise_over_shift",
    "epsilon",
    "least_epsilon",
)


def zone_epsilons(
    zones: Zones,
    releases: Sequence[Releases],
    delta: float,
    adjacency: Adjacency = "add_remove",
    releases_of: np.ndarray | None = None,
) -> pd.DataFrame:
    """What every observer learns of the devices of every kind of zone: a row each.

    Columns: observer; sees; about (who adds noise on the devices' path below the cloud); devices
    (their number); rounds_known (whether only rounds count that a device is known to have joined).
    noise_over_shift and epsilon are the most exposed device's. least_epsilon is that of the device
    with most noise over what it moves.

    Args:
        releases: the different ones of devices.
        releases_of: int64 (n,), which of them are a device's; the first, unless given.
    """
    kinds = np.zeros(len(zones.zone_of), dtype=np.int64) if releases_of is None else releases_of
    abouts = _about(zones)

    def epsilon_of(view: View, over: np.ndarray, device: int) -> float:
        noise = float(over[device])
        if noise in (0.0, inf):
            return inf if noise == 0.0 else 0.0
        its = releases[kinds[device]].behind(noise, view.told[device])
        return epsilon(its, delta, adjacency)

    rows = []
    for view in views(zones):
        over = np.sqrt(np.maximum(view.variance, 0.0)) / (view.weights * zones.moves)
        for about in dict.fromkeys(abouts.tolist()):
            members = np.flatnonzero((abouts == about) & ~np.isnan(over))
            if not members.size:
                continue
            learned = partial(epsilon_of, view, over)
            exposed = _most_exposed(members, kinds, releases, view, over)
            worst = max(exposed, key=learned)
            best = int(members[np.argmax(over[members])])
            known, noise = bool(view.told[worst]), float(over[worst])
            whom = view.observer, view.sees, about, len(members)
            rows.append((*whom, known, noise, learned(worst), learned(best)))
    return pd.DataFrame(rows, columns=list(LEARNED))


def _most_exposed(
    members: np.ndarray,
    kinds: np.ndarray,
    releases: Sequence[Releases],
    view: View,
    over: np.ndarray,
) -> list[int]:
    """Devices of which one learns most: of those with the same releases that with least noise, less
    those that another one's releases dominate."""
    found: dict[Composition, int] = {}
    silent = members[over[members] == 0]
    if silent.size:
        return [int(silent[0])]
    for kind, told in np.unique(np.column_stack([kinds, view.told])[members], axis=0).tolist():
        these = members[(kinds[members] == kind) & (view.told[members] == told)]
        device = int(these[np.argmin(over[these])])
        if over[device] < inf:
            found.setdefault(releases[kind].behind(float(over[device]), told), device)
    if not found:  # nobody reads anything
        return [int(members[0])]
    return [found[composition] for composition in undominated(set(found))]


def _about(zones: Zones) -> np.ndarray:
    """In words, (n,): who adds noise on each device's path below the cloud."""
    number = (zones.devices > 0) + 2 * (zones.super_nodes > 0)[zones.zone_of]
    who = "nobody adds noise", "devices add noise", "super-nodes add noise", "both add noise"
    return np.array(who)[number]
