"""A run over H's zones, and what their observers learn."""

from dataclasses import fields
from functools import lru_cache

import pandas as pd

from m2fdp.core.config import Config
from m2fdp.core.engine.local_rules import adds_up
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.summary import Promised
from m2fdp.core.schedule.rounds import RoundPlan, RunPlan
from m2fdp.core.streams import seeded
from m2fdp.core.topology.network import Network
from m2fdp.zones.lots import Exposure
from m2fdp.zones.offices import Offices, draw_offices, in_office
from m2fdp.zones.table import COLUMNS, zones_table

_EMPTY_ZONE = "a zone in which nobody joins elects nobody, and adds its noise all the same"


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
    names = [field.name for field in fields(Exposure)]
    network, config = assembly.network, assembly.config
    if not network.members_serve:
        return pd.DataFrame(columns=["zone", "device", "present", *names])
    rounds, tree = assembly.calibration.affordable_rounds, network.tree
    planned = assembly.run_plan.rounds
    offices = _drawn(network, planned, config.seed, config.threat.colluding)
    exposure = offices.exposure(tuple(range(rounds)))
    zones = [tree.names[-2][zone] for zone in tree.parents[-1]]
    return pd.DataFrame({"zone": zones, "device": tree.names[-1]}).assign(
        present=offices.present[:rounds].sum(axis=0),
        **{name: getattr(exposure, name) for name in names},
    )


def promised(assembly: Assembly) -> Promised:
    """What epsilon rests on where zones elect their super-nodes, and how unevenly elections have
    fallen: the most rounds that a device served, and that one other, or the worst others who
    collude, served it."""
    served = elections_table(assembly)
    if served.empty:
        return Promised()
    counts = served[["served", "under_one_other", "under_coalition"]].max()
    by_chance = assembly.network.chance is not None
    return Promised(
        (
            *[_EMPTY_ZONE] * by_chance,
            "elections are uniform: of a zone's devices no more collude than "
            "topology.super_nodes.tolerance stands, and none leaves one because of who would win",
            "who is elected when is public and known before training; super-nodes tell nobody but "
            "those counted as colluding what they have seen in office",
        ),
        {"elections": {f"most_{name}": int(count) for name, count in counts.items()}},
    )
