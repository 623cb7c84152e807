"""Who holds the office of a super-node when, and which devices take part meanwhile.

Elections are drawn before training and depend on no record, so their outcome is public, and what
one device can learn of another in office is counted in the rounds that it serves.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
import pandas as pd

from m2fdp.chance.joining import of_those
from m2fdp.core.config import Config
from m2fdp.core.engine.minibatches import draw_participants
from m2fdp.core.engine.rules import adds_up
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.formatting import counted
from m2fdp.core.privacy.accounting import Composition
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.releases import AlikeRounds, Past, Release
from m2fdp.core.privacy.summary import Promised
from m2fdp.core.schedule.rounds import RoundPlan, RunPlan
from m2fdp.core.streams import Streams, seeded
from m2fdp.core.topology.network import Network
from m2fdp.secure_aggregation.rounds import stays
from m2fdp.zones.lots import NobodyElected, elect
from m2fdp.zones.super_nodes import ByTurns
from m2fdp.zones.table import COLUMNS, zones_table


@dataclass(frozen=True, eq=False)
class Offices:
    """The super-nodes of a run.

    Attributes:
        zones: int64 (N_L,), each device's zone, by its lowest server.
        present: bool (T, N_L), who takes part in which round.
        leaders: int64 (T, N_{L-1}), the device that serves each zone; -1 = nobody.
        coalition: how many devices tell one another what they see when they serve.
    """

    zones: np.ndarray
    present: np.ndarray
    leaders: np.ndarray
    coalition: int = 1

    @property
    def serves(self) -> np.ndarray:
        """bool (T, N_L), the devices that serve their zone."""
        return self.leaders[:, self.zones] == np.arange(len(self.zones))


@dataclass(frozen=True, eq=False)
class Exposure:
    """What super-nodes could see of each device over some rounds, int64 (N_L,) each.

    Attributes:
        served: the rounds that the device served.
        under_one_other: the most rounds that any single other device served while it took part.
        under_coalition: the same of so many others together, the worst for the device.
    """

    served: np.ndarray
    under_one_other: np.ndarray
    under_coalition: np.ndarray


@lru_cache(maxsize=256)
def exposure(offices: Offices, rounds: tuple[int, ...]) -> Exposure:
    """Of all devices, in some of the rounds, counted from 0."""
    present, leaders = offices.present[list(rounds)], offices.leaders[list(rounds)]
    counts = np.zeros((3, len(offices.zones)), dtype=np.int64)
    for zone in range(leaders.shape[1]):
        members = np.flatnonzero(offices.zones == zone)
        held = leaders[:, zone] >= 0
        places = np.searchsorted(members, leaders[held, zone])
        together = np.zeros((len(members), len(members)), dtype=np.int64)  # leader, device
        np.add.at(together, places, present[held][:, members].astype(np.int64))
        np.fill_diagonal(together, 0)
        worst_first = -np.sort(-together, axis=0)
        counts[0, members] = np.bincount(places, minlength=len(members))
        counts[1:, members] = worst_first[0], worst_first[: offices.coalition].sum(axis=0)
    return Exposure(*counts)


@dataclass(frozen=True)
class InOffice(ByTurns):
    """The account of an elected super-node: the rounds that the worst ones serve, and all others
    that the device joins."""

    offices: Offices

    def shown(self, line: Release, past: Past) -> Iterator[AlikeRounds]:
        """Rounds with the same laws are counted together, for no super-node is worst in all. The
        largest numbers of rounds served and joined over the position's devices count."""
        plans: dict[tuple[int, Composition], list[RoundPlan]] = {}
        for plan in past.counted:
            position, _ = line.views[plan.network]
            plans.setdefault((plan.network, line.laws(position, plan)), []).append(plan)
        members = list(line.position.members)
        for (network, laws), same_plans in plans.items():
            its_rounds = past.rounds(*same_plans)
            exposed = exposure(self.offices, tuple(its_rounds.tolist()))
            served = int(exposed.under_coalition[members].max())
            joined = len(its_rounds)
            if line.position.joins is not None:
                joined = int(self.offices.present[its_rounds][:, members].sum(axis=0).max())
            _, deviation = line.views[network]
            for times, noise in ((served, deviation), (joined - served, self.otherwise)):
                if times:
                    yield AlikeRounds(same_plans[0], laws, times, noise)

    def words(self, line: Release, shown: Sequence[AlikeRounds], past: Past) -> list[str]:
        coalition, members = self.offices.coalition, list(line.position.members)
        most = exposure(self.offices, tuple(range(past.total))).under_coalition[members].max()
        others = "other" if coalition == 1 else f"{coalition} others"
        return [
            f"serving in {most} of {counted(past.total, 'round')}, the most that any {others} did "
            "while one of these devices took part"
        ]


def in_office(ledger: Ledger, offices: Offices) -> Ledger:
    """The ledger whose lines by turns count the rounds that are drawn."""
    lines = (
        replace(line, account=InOffice(line.account.otherwise, offices, spent=line.account.spent))
        if isinstance(line.account, ByTurns)
        else line
        for line in ledger.lines
    )
    return of_those(replace(ledger, lines=tuple(lines)), public=offices.serves)


def draw_super_nodes(
    network: Network, present: np.ndarray, streams: Streams, round_: int, last_step: int = 1
) -> np.ndarray:
    """Each zone's super-node, uniform over its devices that take part: int64 (N_{L-1},), devices
    by index; -1 where there are none.

    A device that falls silent in the sum that ends the round can't serve: the others draw anew.
    `last_step` is the round's last, which ends in the global aggregation.
    """
    tree = network.tree
    silent = np.zeros(tree.n_devices, dtype=bool)
    if tree.depth in network.sums.layers:
        silent = ~stays(network, streams, tree.depth, (round_, last_step))
    result = np.full(tree.n_nodes(tree.depth - 1), -1)
    for zone in range(len(result)):
        candidates = np.flatnonzero((tree.parents[-1] == zone) & present)
        nonces = streams.generator("election", round_, zone).bytes
        with suppress(NobodyElected):
            falling = candidates[silent[candidates]].tolist()
            result[zone] = elect(candidates.tolist(), nonces, falling).leader
    return result


def draw_offices(
    network: Network, streams: Streams, plans: Sequence[RoundPlan], coalition: int
) -> Offices:
    """Who serves in which round, drawn as the rounds draw it."""
    present, leaders = [], []
    for round_, plan in enumerate(plans, start=1):
        here = draw_participants(network, streams, round_)
        present.append(here)
        leaders.append(draw_super_nodes(network, here, streams, round_, len(plan.layers)))
    return Offices(network.tree.parents[-1], np.stack(present), np.stack(leaders), coalition)


class Zoned(PlainExperiment):
    """A run, and the tables of its zones."""

    def elections(self) -> pd.DataFrame:
        """A row for each device where zones elect super-nodes: when it and others served."""
        return elections_table(self)

    def zones_table(self) -> pd.DataFrame:
        """What every observer learns in H's zones, whoever is trusted, beside H's formula. No row
        where a local rule makes something else of noise: what the table sums up is not there then.
        """
        if not adds_up(self.plan.rules.local):
            return pd.DataFrame(columns=list(COLUMNS))
        mechanism, rounds = self.calibration.mechanism, self.calibration.affordable_rounds
        privacy, colluding = self.config.privacy, self.config.threat.colluding
        return zones_table(self.network, mechanism, rounds, privacy, colluding)


def with_offices(config: Config, run_plan: RunPlan, ledger: Ledger) -> Ledger:
    """The ledger of the super-nodes that training will elect."""
    network = run_plan.networks[0]
    if not network.members_serve:
        return ledger
    return in_office(ledger, _drawn(network, run_plan.rounds, config.seed, config.threat.colluding))


@lru_cache(maxsize=8)  # a calibration tries many ledgers
def _drawn(network: Network, plans: tuple[RoundPlan, ...], seed: int, colluding: int) -> Offices:
    return draw_offices(network, seeded(seed, b"").sampling, plans, colluding + 1)


def elections_table(assembly: Assembly) -> pd.DataFrame:
    """One row a device; no row where nobody is elected.

    Columns: zone, device; the rounds that it was present, that it served as its zone's super-node,
    and that the worst other (under_one_other), or the worst colluders (under_coalition), served it.
    """
    network, config = assembly.network, assembly.config
    if not network.members_serve:
        names = [field.name for field in fields(Exposure)]
        return pd.DataFrame(columns=["zone", "device", "present", *names])
    rounds, tree = assembly.calibration.affordable_rounds, network.tree
    planned = assembly.run_plan.rounds
    offices = _drawn(network, planned, config.seed, config.threat.colluding)
    zones = [tree.names[-2][zone] for zone in tree.parents[-1]]
    return pd.DataFrame({"zone": zones, "device": tree.names[-1]}).assign(
        present=offices.present[:rounds].sum(axis=0),
        **vars(exposure(offices, tuple(range(rounds)))),
    )


def promised(assembly: Assembly) -> Promised:
    """What epsilon rests on where zones elect their super-nodes, and how unevenly elections have
    fallen: the most rounds that a device served, and that one other, or the worst others who
    collude, served it."""
    served = elections_table(assembly)
    if served.empty:
        return Promised()
    sentences = [
        "elections are uniform: of a zone's devices no more collude than "
        "topology.super_nodes.tolerance stands, and none leaves one because of who would win",
        "who is elected when is public and known before training; super-nodes tell nobody but "
        "those counted as colluding what they have seen in office",
    ]
    if assembly.network.chance is not None:
        empty = "a zone in which nobody joins elects nobody, and adds its noise all the same"
        sentences.insert(0, empty)
    counts = served[["served", "under_one_other", "under_coalition"]].max()
    entries = {f"most_{name}": int(count) for name, count in counts.items()}
    return Promised(tuple(sentences), {"elections": entries})
