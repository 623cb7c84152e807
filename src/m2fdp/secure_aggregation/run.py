"""A run whose messages are read in sums."""

from __future__ import annotations

from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.secure_aggregation.survivors import SumRules


class Summed(PlainExperiment):
    """A run whose messages may be read in sums only (`secure_aggregation`)."""

    def simulated(self, simulation: Simulation) -> Simulation:
        rules = SumRules(stop=self.config.secure_aggregation.on_loss == "stop")
        return super().simulated(simulation).having(rules)
