"""The table of zones of a run: `m2fdp.zones.views`, for the noise that a run really adds."""

from collections import Counter
from dataclasses import replace
from math import prod, sqrt

import numpy as np
import pandas as pd

from m2fdp.chance.joining import ByChance
from m2fdp.core.config import PrivacyConfig
from m2fdp.core.privacy.accounting import Composition, ShiftLaw
from m2fdp.core.privacy.calibration import (
    CalibratedMechanism,
    largest_shift,
    nominal_epsilon,
    one_line_each,
)
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.privacy.releases import Release
from m2fdp.core.privacy.sight import PUBLIC
from m2fdp.core.topology.network import Network, heads_of
from m2fdp.tiers.split_noise import exposed_splits
from m2fdp.zones.views import LEARNED, Releases, Zones, zone_epsilons

# The first five are the run's, the same in every row.
COLUMNS = (
    "case",
    "v",
    "epsilon_nominal",
    "epsilon_by_h",
    "epsilon_by_h_with_sums",
    *LEARNED,
    "delta",
    "adjacency",
)


def zones_table(
    network: Network,
    mechanism: CalibratedMechanism,
    rounds: int,
    privacy: PrivacyConfig,
    colluding: int = 0,
) -> pd.DataFrame:
    """What every observer learns in a tree of two tiers, beside H's formula: a row for each
    observer and each kind of zone.

    The table is for rounds in which models travel once, up to the cloud and back. With noise at
    every step a round has one step, or the cloud noises all steps; else devices act on noise that a
    sum would hide. There are no rows for other runs:

    - without privacy, or with trees of other depths;
    - with uncertain noise: senders may fall silent, or its weight depends on who comes;
    - with noised activations: their noise does not add up in a sum, and labels may cost epsilon.

    `COLUMNS` are H's case; V, the variances of one adder in the global sum; the nominal epsilon;
    H's, over the root of V, and with secure aggregation over V; then those of `zone_epsilons`.
    """
    empty = pd.DataFrame(columns=list(COLUMNS))
    if not mechanism.private or network.tree.depth != 2:
        return empty
    ledger = mechanism.ledger
    plans, lines = set(ledger.plans), list(one_line_each(ledger).values())
    steps = get_mechanism(privacy.mechanism).noises_every_step
    one_step = all(len(plan.layers) == 1 for plan in plans)
    if (
        (steps and not one_step and heads_of(network)[:, 0].any())
        or any(top for plan in plans for top in plan.layers)
        or len({plan.network for plan in plans}) > 1
        or not all(line.account.by_laws for line in lines)  # releases have noises of their own
        or exposed_splits(network).any()
        or network.sums.dropout
        or _weighs_noise(network)
    ):
        return empty
    zones = replace(_zones(network, mechanism, lines, steps, rounds), colluding=colluding)
    of_device = np.zeros(network.tree.n_devices, dtype=np.int64)
    for number, line in enumerate(lines):
        of_device[list(line.position.members)] = number
    if network.chance is not None:  # as the ledger counts
        zones = replace(zones, shown=~np.array([x.position.unnoticed for x in lines])[of_device])
    releases = [_releases(line, ledger, rounds) for line in lines]
    v = round(zones.adders(_one_adder(zones, network, privacy)), 12)
    nominal = nominal_epsilon(ledger, rounds, privacy)
    learned = zone_epsilons(zones, releases, ledger.delta, ledger.adjacency, of_device)
    found = learned.assign(
        case=zones.case,
        v=v,
        epsilon_nominal=nominal,
        epsilon_by_h=nominal / sqrt(v),
        epsilon_by_h_with_sums=nominal / v,
        delta=ledger.delta,
        adjacency=ledger.adjacency,
    )
    return found[list(COLUMNS)]


def _weighs_noise(network: Network) -> bool:
    """Whether what devices' noise counts with depends on who joins."""
    participation = network.participation
    by_weight = participation is not None and participation.least_weight is not None
    return by_weight and network.chance is not None and bool(network.noise[-1].any())


def _zones(
    network: Network, mechanism: CalibratedMechanism, lines: list[Release], steps: bool, rounds: int
) -> Zones:
    """What the mechanism has each node add, and what the ledger says that each device moves."""
    moves = np.zeros(network.tree.n_devices)
    for line in lines:
        position = line.position
        head = position.unit * largest_shift(line, mechanism.ledger, 0)
        moves[list(position.members)] = head / prod(position.shares)
    cloud, super_nodes, devices = mechanism.noise.heads if steps else mechanism.noise.messages
    counted = lines[0].account
    joined = counted.attendance.joins if isinstance(counted, ByChance) else None
    return Zones(
        network.tree.parents[1],
        network.weights[1],
        network.weights[0],
        moves,
        devices,
        super_nodes,
        float(cloud[0]),
        network.odds,
        _attendance(network, devices, None if joined is None else joined[:rounds]),
        network.members_serve,
        network.sums,
    )


def _attendance(
    network: Network, devices: np.ndarray, drawn: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """See `m2fdp.zones.views.Zones`: who is there, and what is certain of their noise.

    Of a fixed number that of the quietest; of those that join by chance their own in the rounds
    that were drawn for them, and nothing where these are not known.
    """
    zone_of = network.tree.parents[1]
    of_devices = (network.weights[1] * devices) ** 2
    if network.chance is not None:
        if drawn is None:
            return np.ones((1, len(devices)), dtype=bool), np.zeros_like(of_devices)
        if not devices.any():  # then all rounds are alike
            drawn = np.asarray(drawn.any(axis=0, keepdims=True))
        return drawn, of_devices
    if network.participants is None:
        return None
    quietest = np.full(network.tree.n_nodes(1), np.inf)
    np.minimum.at(quietest, zone_of, of_devices)
    return _turns(network), quietest[zone_of]


def _turns(network: Network) -> np.ndarray:
    """Rounds of as many devices a zone as take part; every device is in one of them at least."""
    zone_of, present = network.tree.parents[1], network.present
    sizes, place = np.bincount(zone_of), network.tree.sibling_rank()
    turns = np.arange((-(-sizes // present)).max())[:, None]
    return (place - turns * present[zone_of]) % sizes[zone_of] < present[zone_of]


def _releases(line: Release, ledger: Ledger, rounds: int) -> Releases:
    """Of a position's devices, in units of the most that one of them is, as the ledger counts them
    for the public where something shows who joins, and where nothing does."""
    largest = largest_shift(line, ledger, 0)

    def counted(unnoticed: bool) -> Composition:
        sums: Counter[ShiftLaw] = Counter()
        position = replace(line.position, unnoticed=unnoticed)
        as_if = replace(line, kind=PUBLIC, position=position)
        for alike in ledger.released(as_if, rounds):
            for law, count in alike.laws:
                sums[law.scaled(1.0 / largest)] += count * alike.times
        return tuple(sums.items())

    return Releases(counted(unnoticed=False), counted(unnoticed=True))


def _one_adder(zones: Zones, network: Network, privacy: PrivacyConfig) -> float:
    """An adder's full noise over what a device moves its message by: z, or the loudest's."""
    if privacy.noise_multiplier is not None:
        return privacy.noise_multiplier
    cloud, super_nodes, devices = network.noise
    added = (np.atleast_1d(each) for each in zones.multipliers)
    found = zip(added, (devices, super_nodes, cloud), strict=True)
    return max(float((noise[part > 0] / part[part > 0]).max(initial=0.0)) for noise, part in found)
