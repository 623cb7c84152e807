"""A run whose messages are read in sums."""

from __future__ import annotations

from dataclasses import replace

from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.engine.step_sums import step_in_sums
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.privacy.summary import assumptions_of_sums
from m2fdp.core.streams import seeded
from m2fdp.secure_aggregation.survivors import SumRules, count_lost

# Which sums are lost is drawn before training; more local steps are not looked at.
_MOST_STEPS_COUNTED = 20_000


class Summed(PlainExperiment):
    """A run whose messages may be read in sums only (`secure_aggregation`)."""

    def simulated(self, simulation: Simulation) -> Simulation:
        sums = self.config.secure_aggregation
        rules = SumRules(stop=sums.on_loss == "stop", masks=sums.protocol == "masks")
        return replace(super().simulated(simulation), sums=rules)

    def assumptions(self) -> list[str]:
        sums, colluding = self.config.secure_aggregation, self.config.threat.colluding
        return super().assumptions() + assumptions_of_sums(sums, colluding)

    def foreseen_losses(self) -> list[str]:
        """How many sums nobody will read; not where nothing can be foreseen, or counting takes
        long."""
        (network, *_), lines = self.run_plan.networks, super().foreseen_losses()
        plans = self.run_plan.rounds[: self.calibration.affordable_rounds]
        steps = sum(len(plan.layers) for plan in plans)
        secure = self.config.privacy.secure_rng
        if not network.sums.dropout or secure or steps > _MOST_STEPS_COUNTED:
            return lines
        every_step = step_in_sums(network, self.calibration.mechanism)
        streams = seeded(self.config.seed, b"").sampling
        lost, total = count_lost(network, plans, streams, every_step)
        if lost:
            lines.append(
                f"{lost:,} of {total:,} sums lose too many senders to be read: training goes on as "
                "if none of them had moved (secure_aggregation.dropout, threshold)"
            )
        return lines
