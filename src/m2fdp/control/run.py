"""A run whose rounds a controller chooses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from m2fdp.control.assembly import controller_of
from m2fdp.control.controller import ControlledRounds, Controller, controlled_plan
from m2fdp.convergence.mean_descent import smoothness_of
from m2fdp.core.costs.resources import Cost
from m2fdp.core.engine.lengths import TooLongError
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.engine.training import DivergenceError, RoundPolicy
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.schedule.rounds import RunPlan


class Controlled(PlainExperiment):
    """A run whose rounds a controller may choose (`control`)."""

    @cached_property
    def controller(self) -> Controller | None:
        """What chooses the rounds, if anything does."""
        return controller_of(self, self.model) if self.config.control.enabled else None

    @cached_property
    def scheduled(self) -> RunPlan:
        """The rounds as the controller will choose them, if one does."""
        if self.controller is None:
            return super().scheduled
        return controlled_plan(self.controller, self.network, self.plan.schedule)

    @property
    def step_sizes(self) -> set[float]:
        return set() if self.config.control.enabled else super().step_sizes

    def paced(self, simulation: Simulation) -> tuple[Sequence[Cost], RoundPolicy]:
        costs, policy = super().paced(simulation)
        if self.controller is not None:
            policy = ControlledRounds(self.controller, self.run_plan.rounds, simulation)
        return costs, policy

    def check_split(self, sizes: np.ndarray) -> None:
        """Also refuse a loss of whose curvature nothing is known."""
        super().check_split(sizes)
        if self.config.control.enabled:
            smoothness_of(self.config, self.build_model(0), self.input_shape)

    @property
    def vectorised_by(self) -> str | None:
        controlled = self.config.control.enabled and not self.plan.private
        return "the controller (control.enabled)" if controlled else super().vectorised_by

    @property
    def smaller_steps(self) -> tuple[str, str]:
        if not self.config.control.enabled:
            return super().smaller_steps
        if self.config.control.gap == "papers":
            return "control.step_size_factor", "smaller"
        return "control.smoothness", "larger"

    def too_large(self, error: DivergenceError | TooLongError) -> InputError:
        if not self.config.control.enabled:
            return super().too_large(error)
        key, change = self.smaller_steps
        return InputError(key, f"eta {error.step_size:.3g}", f"{error}; choose a {change} one")

    def too_long(self, error: TooLongError) -> InputError:
        if not self.config.control.enabled:
            return super().too_long(error)
        if not np.isfinite(error.length):
            return self.too_large(error)
        eta = f"eta {error.step_size:.3g}"
        return InputError(self.smaller_steps[0], eta, f"{error}; take longer steps")
