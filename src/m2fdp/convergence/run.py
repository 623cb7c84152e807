"""A run whose steps noise shortens, and whose convergence is bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from m2fdp.convergence.bound import network_terms
from m2fdp.convergence.descent import accumulated_noise, round_noise, shortened
from m2fdp.convergence.facts import EQUAL_ROUNDS, check_bound
from m2fdp.convergence.measurement import measure_run
from m2fdp.convergence.tables import (
    bound_summary,
    bound_table,
    broken_assumptions,
    estimate_constants,
    layer_table,
)
from m2fdp.core.costs.resources import Cost
from m2fdp.core.engine.server_rules import adding
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.engine.training import FixedRounds, RoundPolicy
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.experiment.facts import refuse
from m2fdp.core.experiment.request import Request
from m2fdp.core.models.checks import check_one_by_one
from m2fdp.core.schedule.schedule import Schedule


@dataclass(frozen=True, eq=False)
class ConvergenceBounds:
    """The convergence bounds of a run, beside what was measured along it.

    Attributes:
        by_round: table of `m2fdp.convergence.tables.bound_table`.
        by_layer: table of `m2fdp.convergence.tables.layer_table`.
        summary: constants, where they come from, and whether the assumptions hold; for JSON.
        warnings: what a reader must know of the assumptions, a sentence each.
    """

    by_round: pd.DataFrame
    by_layer: pd.DataFrame
    summary: Mapping[str, Any]
    warnings: tuple[str, ...]


class Bounded(PlainExperiment):
    """A run, the convergence bounds of one, and steps short enough for little noise in the last
    model (`training.accumulated_noise`)."""

    @cached_property
    def accumulated_noise(self) -> float | None:
        """What noise alone would make of a parameter in steps as scheduled; None where
        `training.accumulated_noise` does not ask, or nothing is noised."""
        rule = adding(self.plan.rules.server)
        if self.config.training.accumulated_noise is None or not self.plan.private or rule is None:
            return None
        mechanisms, rounds = self.calibration.mechanisms, self.calibration.affordable_rounds
        return accumulated_noise(self.scheduled, mechanisms, rule.carried(rounds))

    @cached_property
    def schedule(self) -> Schedule:
        """The plan's, its steps as short as `training.accumulated_noise` asks."""
        schedule, most = super().schedule, self.config.training.accumulated_noise
        if most is None or self.accumulated_noise is None:
            return schedule
        return shortened(schedule, self.accumulated_noise, most)

    def paced(self, simulation: Simulation) -> tuple[Sequence[Cost], RoundPolicy]:
        costs, policy = super().paced(simulation)
        if self.accumulated_noise is not None:
            policy = FixedRounds(self.run_plan.rounds, told=True)
        return costs, policy

    def measure(self) -> pd.DataFrame:
        """Train, and measure loss, gradients and curvature along the run; see
        `m2fdp.convergence.measurement.measure_run`.

        Raises:
            InputError: the rounds are a controller's.
        """
        refuse(EQUAL_ROUNDS, Request(self.config, self.plan))
        model = self.model
        if model.is_own:
            check_one_by_one(model.name, model.module, self.input_shape, "what is measured")
        rounds = self.run_plan.rounds[: self.calibration.affordable_rounds]
        return measure_run(self.process(), rounds, self.config.training.evaluate_every)

    def bound(self, measured: pd.DataFrame | None = None) -> ConvergenceBounds:
        """The convergence bounds beside what is measured.

        Args:
            measured: table of `measure`, which is called where it is not given.

        Raises:
            InputError: a fact that `BOUND` needs does not hold, or no gradient has changed along
                the run, so that nothing is known of beta.
        """
        privacy, network, schedule = self.config.privacy, self.network, self.schedule
        check_bound(self.config, self.plan)
        measured = self.measure() if measured is None else measured
        mechanism, n_parameters = self.calibration.mechanism, self.model.n_parameters
        rate = float(self.sampling_rates.max())
        constants = estimate_constants(measured, mechanism, schedule, privacy, n_parameters, rate)
        noise = round_noise(network, mechanism.lock_step, mechanism.noise, schedule, n_parameters)
        terms = network_terms(network, [privacy.alpha] * network.tree.depth)
        of_run = mechanism, network, schedule, privacy.alpha
        summary = bound_summary(measured, constants, noise, *of_run)
        return ConvergenceBounds(
            bound_table(measured, terms, constants, noise, schedule),
            layer_table(network, terms),
            summary,
            tuple(broken_assumptions(summary)),
        )
