"""A run whose rounds a controller chooses."""

from collections.abc import Sequence
from functools import cached_property
from math import nan

import numpy as np
import pandas as pd

from m2fdp.control.controller import (
    ControlledRounds,
    Controller,
    controlled_plan,
    logged,
    plan_round,
    planned,
)
from m2fdp.control.noise import Spread, noise_laws, sample_terms
from m2fdp.control.problem import build_problem, choice_grid, longest, plan_problem
from m2fdp.convergence.mean_descent import Landscape, longest_squared, smoothness_of
from m2fdp.core.engine.process import Simulation
from m2fdp.core.engine.rules import TooLongError
from m2fdp.core.engine.training import DivergenceError
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Paced, threat_of
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.experiment.parts import Parts
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.calibration import CalibratedMechanism, build_mechanism
from m2fdp.core.privacy.mechanisms import get_mechanism, lock_step_of
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.schedule.rounds import RoundPlan, RunPlan
from m2fdp.core.topology.network import Network
from m2fdp.costs.resources import Links

_SHARES = ["energy_share", "delay_share", "gap_share"]
PLANNED_COLUMNS = ["round", "K", "s_trusted", "s_untrusted", "eta", *_SHARES]


def controller_of(parts: Parts, model: Model) -> Controller:
    """What chooses the rounds, as configured.

    Args:
        model: that is trained.

    Raises:
        InputError: nothing is known of beta, or the target of epsilon can't be met.
    """
    config, schedule, control = parts.config, parts.plan.schedule, parts.config.control
    if control.gap == "mechanism":
        prices = prices_of(parts, model)
        problem, gamma = plan_problem(prices.grid, prices.landscape, prices, schedule, control)
        return Controller(
            problem, schedule, smoothness=prices.landscape.smoothness, step_parameter=gamma
        )
    rate = float(parts.sampling_rates.max())
    problem = build_problem(_links(parts, model), schedule, rate, config.privacy, control)
    beta = smoothness_of(config, model, parts.input_shape)
    return Controller(problem, schedule, control.step_size_factor, smoothness=beta)


def _links(parts: Parts, model: Model) -> Links:
    config, network = parts.config, parts.plan.network
    plans = parts.plan.schedule.round_plans()
    lock_step = lock_step_of(get_mechanism(config.privacy.mechanism), network, plans)
    return Links(network, lock_step, model.n_parameters, config.resources)


def prices_of(parts: Parts, model: Model) -> Spread:
    """What a controller plans by whose gap is of the mechanism's noise.

    For the arguments and errors see `controller_of`.
    """
    config, network, schedule = parts.config, parts.plan.network, parts.plan.schedule
    control, sizes, rates = config.control, parts.samples.sizes, parts.sampling_rates
    mechanism, norm = get_mechanism(config.privacy.mechanism), config.privacy.clipping_norm

    def calibrate(taking_part: Network, plans: Sequence[RoundPlan]) -> CalibratedMechanism:
        threat = threat_of(config, parts.plan)
        premises = Premises(taking_part, sizes, rates, plans, config.privacy, threat)
        return build_mechanism(premises)

    landscape, total = _landscape(parts, model), longest(schedule, control)
    links = _links(parts, model)
    grid = choice_grid(links, schedule, control, total)
    sampled, most = bool((rates < 1).any()), (total, int(grid.local_steps[-1]))
    every_step = mechanism.noises_every_step
    laws = noise_laws(network, schedule, calibrate, most, sampled, every_step)
    # A record's gradient is at most as long as the clipping norm, and so is a minibatch's.
    variances = (1 - rates) / (rates * sizes) * norm**2
    if mechanism.clipping(config.privacy).record_norm is None:
        variances = np.where(rates < 1, norm**2, 0.0)
    zeta = landscape.dissimilarity
    samples = sample_terms(network, links.lock_step, grid.sizes, variances, zeta)
    return Spread(grid, landscape, model.n_parameters, laws, samples)


def _landscape(parts: Parts, model: Model) -> Landscape:
    config, (shape, n_classes) = parts.config, parts.classified
    smoothness = smoothness_of(config, model, shape)
    assert smoothness is not None  # the configuration refuses an estimate
    mean_curvature = smoothness
    if model.curvature_sum is not None:
        trace = model.curvature_sum * longest_squared(config, shape)
        mean_curvature = min(smoothness, trace / model.n_parameters)
    zeta = config.control.dissimilarity or config.privacy.clipping_norm
    return Landscape(smoothness, zeta, model.loss_of_equal_scores(n_classes), mean_curvature)


def planned_rounds(controller: Controller | None, most_rounds: int) -> pd.DataFrame:
    """What a controller decides of every round before training; no rows without one.

    Args:
        most_rounds: T.

    Returns:
        `round`, `K`, `s_trusted`, `s_untrusted`; `eta`, NaN where it waits for beta; and of (P),
        for all local steps that are left, `energy_share`, `delay_share` and `gap_share`.
    """
    if controller is None:
        return pd.DataFrame(columns=PLANNED_COLUMNS)
    beta = controller.smoothness or nan
    states = (state for state, _ in planned(controller, most_rounds))
    rounds = [plan_round(controller, state, beta)[0] for state in states]
    rows = [{"round": control.round, **logged(control)} for control in rounds]
    return pd.DataFrame(rows)[PLANNED_COLUMNS]


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

    def paced(self, simulation: Simulation) -> Paced:
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
