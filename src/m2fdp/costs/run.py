"""A run, and what its rounds cost."""

from m2fdp.core.engine.process import Simulation
from m2fdp.core.engine.rules import keeping
from m2fdp.core.experiment.assembly import Paced
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.costs.resources import Links, round_costs, totals


class Billed(PlainExperiment):
    """A run whose rounds cost joules and seconds (`resources`)."""

    def paced(self, simulation: Simulation) -> Paced:
        _, policy = super().paced(simulation)
        return totals(round_costs(self.links(simulation), self.run_plan.rounds)), policy

    def links(self, simulation: Simulation) -> list[Links]:
        """The links of each of the run's networks."""
        rule, n_parameters = keeping(simulation.rules.local), simulation.model.n_parameters
        of_run = n_parameters, self.config.resources, len(rule.reports) if rule is not None else 0
        return [
            Links(network, mechanism.lock_step, *of_run)
            for network, mechanism in zip(simulation.networks, simulation.mechanisms, strict=True)
        ]
