"""A run whose messages are read in sums."""

from __future__ import annotations

from dataclasses import replace

from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.secure_aggregation.survivors import SumRules


class Summed(PlainExperiment):
    """A run whose messages may be read in sums only (`secure_aggregation`)."""

    def simulated(self, simulation: Simulation) -> Simulation:
        sums = self.config.secure_aggregation
        rules = SumRules(stop=sums.on_loss == "stop", masks=sums.protocol == "masks")
        return replace(super().simulated(simulation), sums=rules)
