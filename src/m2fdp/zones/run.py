"""A run over H's zones, and what their observers learn."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import pandas as pd

from m2fdp.core.engine.local_rules import adds_up
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.privacy import ledger_tables
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.summary import assumptions_of_elections, elections_summary
from m2fdp.core.streams import seeded
from m2fdp.zones.elections import draw_offices
from m2fdp.zones.offices import Offices
from m2fdp.zones.table import COLUMNS, zones_table


class Zoned(PlainExperiment):
    """A run whose zones may elect their super-nodes (`topology.super_nodes`)."""

    @cached_property
    def offices(self) -> Offices | None:
        """Who is elected in which round, as training will draw it; None where that can't be known,
        or nobody is."""
        config, (network, *_) = self.config, self.scheduled.networks
        if not network.elected or config.privacy.secure_rng:
            return None
        streams, coalition = seeded(config.seed, b"").sampling, config.threat.colluding + 1
        return draw_offices(network, streams, self.scheduled.rounds, coalition)

    def foreseen(self, ledger: Ledger) -> Ledger:
        return replace(super().foreseen(ledger), offices=self.offices)

    def elections(self) -> pd.DataFrame:
        """A row for each device where zones elect super-nodes: when it and others served."""
        ledger, rounds = self.calibration.accounted
        return ledger_tables.elections_table(self.network, ledger.offices, rounds)

    def zones_table(self) -> pd.DataFrame:
        """What every observer learns in H's zones, whoever is trusted, beside H's formula. No row
        where a local rule makes something else of noise: what the table sums up is not there then.
        """
        if not adds_up(self.plan.rules.local):
            return pd.DataFrame(columns=list(COLUMNS))
        mechanism, rounds = self.calibration.mechanism, self.calibration.affordable_rounds
        privacy, colluding = self.config.privacy, self.config.threat.colluding
        return zones_table(self.network, mechanism, rounds, privacy, colluding)

    def assumptions(self) -> list[str]:
        return super().assumptions() + assumptions_of_elections(self.elections())

    def summary(self) -> dict[str, Any]:
        told = super().summary()
        private = self.calibration.mechanism.private
        return told | elections_summary(self.elections()) if private else told
