"""Zones (H): what every observer learns, whoever is trusted, beside what H's formula says.

Below a cloud lie zones, each a super-node with its devices; any of them may add noise (H Sec. V,
C1 to C7). H takes the noise of all adders together, V times one adder's variance in the global sum,
and says epsilon / sqrt(V), or epsilon / V with secure aggregation. At most somebody who reads
broadcasts alone could be told that. By the one rule of the ledger (`m2fdp.privacy.releases`) an
observer learns what the lowest message tells that it can read of a device's, behind the noise in it
that it did not draw itself.

Devices that join rounds by chance are hidden among those who might have, from observers who are
never told, unless noise of their own comes with them and shows it. Others count the rounds that a
device joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf

import numpy as np
import pandas as pd

from m2fdp.privacy.accounting import Adjacency, Composition, epsilon, scaled
from m2fdp.privacy.ledger import undominated


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
        least: the least variances of devices' noise, in the zones' sums (s,) and in the global one,
            that are there in every round; None is that of all devices.
    """

    zone_of: np.ndarray
    device_weights: np.ndarray
    zone_weights: np.ndarray
    moves: np.ndarray
    devices: np.ndarray
    super_nodes: np.ndarray
    cloud: float
    on_line: np.ndarray
    least: tuple[np.ndarray, float] | None = None

    @classmethod
    def alike(
        cls,
        sizes: Sequence[int],
        devices: np.ndarray | float,
        super_nodes: np.ndarray | float,
        cloud: float,
    ) -> Zones:
        """Zones of so many devices on line each, with uniform weights, whose adders take so many
        times what one device moves their message by at most."""
        numbers = np.asarray(sizes)
        zone_of = np.repeat(np.arange(len(numbers)), numbers)
        s, n = len(numbers), len(zone_of)
        return cls(
            zone_of,
            1.0 / numbers[zone_of],
            np.full(s, 1.0 / s),
            np.ones(n),
            np.broadcast_to(np.asarray(devices, dtype=np.float64), n),
            np.broadcast_to(np.asarray(super_nodes, dtype=np.float64), s) / numbers,
            cloud / (s * numbers.min()),
            np.ones(n),
        )

    @cached_property
    def in_zone(self) -> np.ndarray:
        """float64 (n,), the variance that each device adds to its zone's sum when it is there."""
        return (self.device_weights * self.devices) ** 2

    @cached_property
    def zone_sums(self) -> np.ndarray:
        """float64 (s,), the variance of the devices' noise in each zone's sum."""
        if self.least is not None:
            return self.least[0]
        return np.bincount(self.zone_of, self.in_zone, minlength=len(self.zone_weights))

    @cached_property
    def global_sum(self) -> float:
        """The variance of the noise in the sum over the zones, before the cloud adds any."""
        squares = self.zone_weights**2
        devices = squares @ self.zone_sums if self.least is None else self.least[1]
        return float(devices + squares @ self.super_nodes**2)

    @cached_property
    def broadcast(self) -> float:
        """The variance of the noise in what the cloud broadcasts."""
        return self.global_sum + self.cloud**2

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
        over what a device moves its message by.

        Args:
            one: an adder's noise over that.
        """
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
class Shown:
    """Which messages are read as sums only.

    Attributes:
        zone_sums: those of a zone's devices, by their super-node.
        sum_of_zones: those of all zones, by the cloud.
        sum_of_devices: those of all devices, by the cloud; super-nodes read nothing.
        colluding: how many devices, or super-nodes, pool what they know.
    """

    zone_sums: bool = False
    sum_of_zones: bool = False
    sum_of_devices: bool = False
    colluding: int = 0


@dataclass(frozen=True)
class Releases:
    """What of a device's gets out over a run, in units of what it moves a message by.

    Attributes:
        told: to those who know in which rounds it took part.
        unseen: to those who never do; the same where nobody joins by chance.
    """

    told: Composition
    unseen: Composition


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


def views(zones: Zones, shown: Shown) -> list[View]:
    """Every observer, whoever is trusted: at the super-node, at the cloud, on links, and beyond."""
    weights = zones.global_weights
    broadcast = np.full_like(weights, zones.broadcast)
    shows = zones.devices > 0
    to_cloud = (zones.zone_weights**2)[zones.zone_of]
    loudest = _loudest_others(zones.zone_of, zones.in_zone, 1)
    peers = np.where(np.isnan(loudest), np.nan, broadcast - loudest * to_cloud)
    far = broadcast - _loudest_elsewhere(zones.zone_of, zones.in_zone * to_cloud)
    result = [
        _at_the_super_node(zones, shown, "super-node", 0),
        _at_the_super_node(zones, shown, "elected super-node", 1),
        *_at_the_cloud(zones, shown),
        _on_the_lower_link(zones, shown),
        View("devices of the zone", _BROADCAST, peers, weights, np.ones_like(shows)),
        View("devices elsewhere", _BROADCAST, far, weights, shows),
        View("public", _BROADCAST, broadcast, weights, shows),
    ]
    if not shown.colluding:
        return result
    who = f"super-node with {shown.colluding} devices of the zone"
    return [*result, _at_the_super_node(zones, shown, who, shown.colluding)]


_BROADCAST = "the broadcast"
_WORDS = "uniformly random words"


def _at_the_super_node(zones: Zones, shown: Shown, observer: str, knows: int) -> View:
    """Somebody in its place, who knows what so many devices drew, the loudest but the owner."""
    weights, told = zones.device_weights, np.ones(len(zones.zone_of), dtype=bool)
    if shown.sum_of_devices:
        return View(observer, _WORDS, np.full_like(weights, inf), weights, told)
    if not shown.zone_sums:
        return View(observer, "the device's message", zones.in_zone, weights, told)
    left = zones.zone_sums[zones.zone_of] - (
        _loudest_others(zones.zone_of, zones.in_zone, knows) if knows else 0.0
    )
    return View(observer, "the sum of the zone's messages", left, weights, told)


def _at_the_cloud(zones: Zones, shown: Shown) -> list[View]:
    """The cloud, alone and with super-nodes of other zones, and who listens below it."""
    shows = zones.devices > 0
    listener = "listener between super-node and cloud"
    weights = zones.global_weights
    if not (shown.sum_of_zones or shown.sum_of_devices):
        variance = (zones.zone_sums + zones.super_nodes**2)[zones.zone_of]
        seen = ("the zone's message", variance, zones.device_weights, shows)
        return [View("cloud", *seen), View(listener, *seen)]
    variance = np.full_like(weights, zones.global_sum)
    result = [
        View("cloud", "the sum over all zones", variance, weights, shows),
        View(listener, _WORDS, np.full_like(weights, inf), weights, shows),
    ]
    if shown.colluding and shown.sum_of_zones:
        drawn = zones.zone_weights**2 * zones.super_nodes**2
        known = _loudest_others(np.zeros(len(drawn), dtype=np.int64), drawn, shown.colluding)
        left = variance - known[zones.zone_of]
        who = f"cloud with {shown.colluding} super-nodes of other zones"
        result.append(View(who, "the sum over all zones", left, weights, shows))
    return result


def _on_the_lower_link(zones: Zones, shown: Shown) -> View:
    """Somebody who hears every device send, or not."""
    observer, weights = "listener between device and super-node", zones.device_weights
    told = np.ones(len(weights), dtype=bool)
    if shown.zone_sums or shown.sum_of_devices:
        return View(observer, _WORDS, np.full_like(weights, inf), weights, told)
    return View(observer, "the device's message", zones.in_zone, weights, told)


def _loudest_others(groups: np.ndarray, variance: np.ndarray, count: int) -> np.ndarray:
    """float64 (n,): the sum of the largest variances among others of each one's group; NaN if there
    are none."""
    result = np.full(len(groups), np.nan)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        if len(members) < 2:
            continue
        order = members[np.argsort(-variance[members], kind="stable")]
        count_here = min(count, len(members) - 1)
        first, then = order[:count_here], order[count_here]
        together = variance[first].sum()
        result[members] = together
        result[first] = together - variance[first] + variance[then]
    return result


def _loudest_elsewhere(groups: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """float64 (n,): the largest variance in any other group; NaN if there is none."""
    largest = np.zeros(groups.max() + 1)
    np.maximum.at(largest, groups, variance)
    return _loudest_others(np.zeros(len(largest), dtype=np.int64), largest, 1)[groups]


def zone_epsilons(
    zones: Zones,
    releases: Sequence[Releases],
    shown: Shown,
    delta: float,
    adjacency: Adjacency = "add_remove",
    releases_of: np.ndarray | None = None,
) -> pd.DataFrame:
    """What every observer learns of the devices of every kind of zone: a row each.

    Args:
        releases: of devices.
        releases_of: int64 (n,), which of them are a device's; the first, unless given.

    Returns:
        observer; sees; about, who adds noise on the devices' path below the cloud; devices, how
        many; rounds_known, whether rounds that a device is known to have joined count;
        noise_over_shift, epsilon, of the most exposed of them; least_epsilon, of the one with most
        noise over what it moves.
    """
    kinds = np.zeros(len(zones.zone_of), dtype=np.int64) if releases_of is None else releases_of
    abouts = _about(zones)

    def epsilon_of(view: View, over: np.ndarray, device: int) -> float:
        its = releases[kinds[device]]
        noise = float(over[device])
        if noise == inf:
            return 0.0
        composition = its.told if view.told[device] else its.unseen
        return epsilon(scaled(composition, 1.0 / noise), delta, adjacency) if noise else inf

    rows = []
    for view in views(zones, shown):
        over = np.sqrt(np.maximum(view.variance, 0.0)) / (view.weights * zones.moves)
        for about in dict.fromkeys(abouts.tolist()):
            members = np.flatnonzero((abouts == about) & ~np.isnan(over))
            if not members.size:
                continue
            learned = partial(epsilon_of, view, over)
            exposed = _most_exposed(members, kinds, releases, view, over)
            worst = max(exposed, key=learned)
            best = int(members[np.argmax(over[members])])
            rows.append(
                {
                    "observer": view.observer,
                    "sees": view.sees,
                    "about": about,
                    "devices": len(members),
                    "rounds_known": bool(view.told[worst]),
                    "noise_over_shift": float(over[worst]),
                    "epsilon": learned(worst),
                    "least_epsilon": learned(best),
                }
            )
    return pd.DataFrame(rows)


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
        if over[device] == inf:
            continue
        its = releases[kind].told if told else releases[kind].unseen
        found.setdefault(scaled(its, 1.0 / float(over[device])), device)
    if not found:  # nobody reads anything
        return [int(members[0])]
    return [found[composition] for composition in undominated(set(found))]


def _about(zones: Zones) -> np.ndarray:
    """In words, (n,): who adds noise on each device's path below the cloud."""
    number = (zones.devices > 0) + 2 * (zones.super_nodes > 0)[zones.zone_of]
    return np.array(_ADDERS)[number]


_ADDERS = ("nobody adds noise", "devices add noise", "super-nodes add noise", "both add noise")
