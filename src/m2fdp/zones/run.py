"""A run over H's zones, and what their observers learn."""

from __future__ import annotations

import pandas as pd

from m2fdp.core.engine.local_rules import adds_up
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.zones.promised import elections_table
from m2fdp.zones.table import COLUMNS, zones_table


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
