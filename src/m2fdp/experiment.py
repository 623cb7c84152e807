"""`Experiment`: a run as configured, and all that can be asked of it."""

from m2fdp.adversaries.run import Tested
from m2fdp.control.run import Controlled
from m2fdp.convergence.run import Bounded
from m2fdp.costs.run import Billed
from m2fdp.features.run import Mapped
from m2fdp.selection.scores import Scored
from m2fdp.tables.run import Tabled
from m2fdp.tiers.run import Tiered
from m2fdp.zones.offices import Zoned


class Experiment(Tested, Controlled, Bounded, Tiered, Mapped, Zoned, Scored, Billed, Tabled):
    """A run as configured, and all that can be asked of it.

    Every room changes its own part of the run; the last named is nearest to the plain one, which
    is `m2fdp.core.experiment.experiment.PlainExperiment`.
    """
