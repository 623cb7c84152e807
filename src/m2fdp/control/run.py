"""A run whose rounds the adaptive controller of J Sec. V chooses: step size, local steps and
participation.

J's Part I sets gamma^t from beta, its Part II solves (P); a run starts at K^1 with all devices, and
ends when tau local steps are done. With the noise that the mechanism draws (P) chooses gamma and
tau before training, and the first round as the others.

All of it is a function of network, configuration and beta. How private an estimate of beta is, is
up to whoever makes it: see `m2fdp.convergence.measurement`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan, sqrt

import numpy as np
import pandas as pd

from m2fdp.control.gaps import NOTHING, History
from m2fdp.control.noise import Spread, noise_laws, sample_terms
from m2fdp.control.problem import (
    Choice,
    Problem,
    Terms,
    build_problem,
    choice_grid,
    longest,
    plan_problem,
    present_devices,
    solve,
    terms_at,
    with_present,
)
from m2fdp.convergence.mean_descent import Landscape, longest_squared, smoothness_of
from m2fdp.convergence.measurement import beta_of, first_look, gradients_at, observe
from m2fdp.core.engine.process import Simulation, State
from m2fdp.core.engine.rules import TooLongError
from m2fdp.core.engine.training import CourseState, Decision, DivergenceError, Progress
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Paced, threat_of
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.privacy.calibration import CalibratedMechanism, build_mechanism
from m2fdp.core.privacy.mechanisms import get_mechanism, lock_step_of
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.schedule.rounds import RoundPlan, RunPlan, check_pull
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import Network
from m2fdp.costs.resources import Links

_SHARES = ["energy_share", "delay_share", "gap_share"]
PLANNED_COLUMNS = ["round", "K", "s_trusted", "s_untrusted", "eta", *_SHARES]


@dataclass(frozen=True, eq=False)
class Controller:
    """What a run's controller knows from the start.

    Attributes:
        schedule: configured rounds; its proximal term is no part of (P).
        step_size_factor: c; 1 is J's.
        smoothness: beta, where it is known before training.
        step_parameter: gamma, where (P) chose it.
    """

    problem: Problem
    schedule: Schedule
    step_size_factor: float = 1.0
    smoothness: float | None = None
    step_parameter: float | None = None


@dataclass(frozen=True)
class ControllerState:
    """Between rounds: tau^t, at 0 of which the run ends, and what finished rounds have settled."""

    remaining: int
    history: History = NOTHING


@dataclass(frozen=True)
class RoundControl:
    """What the controller decides for round t.

    Attributes:
        round: t.
        step_size: eta^t = gamma^t / sqrt(t + 1).
        choice: K^t and participation.
        terms: the terms of (P) at the choice.
        smoothness: beta, or the estimate of it that was used.
        remaining: tau^t, before this round.
    """

    round: int
    step_size: float
    choice: Choice
    terms: Terms
    smoothness: float
    remaining: int


def plan_round(
    controller: Controller, state: ControllerState, beta: float
) -> tuple[RoundControl, ControllerState]:
    """The next round of those that are left, by the present estimate of beta, > 0, and the state
    after it."""
    problem, remaining = controller.problem, state.remaining
    choice, after = _choose(problem, state)
    gamma, number = controller.step_parameter, after.history.rounds
    if gamma is None:
        # c min(1/K^(t-1), 1/tau)/beta (J Sec. V-A, c = 1); as K <= tau, tau decides.
        gamma = controller.step_size_factor * (1 / problem.total_steps) / beta
    terms = terms_at(problem, choice, remaining, state.history)
    return RoundControl(number, gamma / sqrt(number + 1), choice, terms, beta, remaining), after


def planned(controller: Controller, most_rounds: int) -> tuple[tuple[ControllerState, Choice], ...]:
    """The state before every round and what is chosen for it, until tau or the rounds are used up.

    Nothing in (P) depends on data or models: noise can be calibrated to K^t and participation, and
    they give nothing away.
    """
    state = ControllerState(controller.problem.total_steps)
    rounds: list[tuple[ControllerState, Choice]] = []
    while state.remaining > 0 and len(rounds) < most_rounds:
        choice, after = _choose(controller.problem, state)
        rounds.append((state, choice))
        state = after
    return tuple(rounds)


def _choose(problem: Problem, state: ControllerState) -> tuple[Choice, ControllerState]:
    """The choice of the next round, and the state after it."""
    if state.history.rounds == 0 and problem.starts_there:
        choice = problem.grid.start
    else:
        choice = solve(problem, state.remaining, state.history)
    history = problem.gap.after(state.history, problem.grid.place(choice), choice.local_steps)
    return choice, ControllerState(state.remaining - choice.local_steps, history)


def controlled_plan(controller: Controller, network: Network, schedule: Schedule) -> RunPlan:
    """What the controller will choose in at most the schedule's rounds of a network in which all
    devices take part."""
    networks: dict[tuple[int, int], Network] = {}
    rounds = []
    for _, choice in planned(controller, schedule.rounds):
        sizes = (choice.trusted, choice.untrusted)
        if sizes not in networks:
            networks[sizes] = with_present(network, present_devices(network, choice))
        layers = replace(schedule, local_steps=choice.local_steps).layers()
        rounds.append(RoundPlan(layers, 1.0, list(networks).index(sizes)))
    return RunPlan(tuple(networks.values()), tuple(rounds))


@dataclass(frozen=True, eq=False)
class ControlledRounds:
    """The controller's rounds (a `RoundPolicy`).

    Its course state is the last look at the devices' gradients; nothing, where beta is declared.

    Attributes:
        rounds: those of `controlled_plan`.
        simulation: parts of the run; where beta is not declared it is estimated from them.
    """

    controller: Controller
    rounds: tuple[RoundPlan, ...]
    simulation: Simulation

    @cached_property
    def states(self) -> tuple[ControllerState, ...]:
        """The controller's, before every round."""
        return tuple(state for state, _ in planned(self.controller, len(self.rounds)))

    def start(self, state: State) -> CourseState:
        if self.controller.smoothness:
            return {}
        gradients = gradients_at(self.simulation, state.weights).gradients
        return first_look(self.simulation, state.weights, gradients)

    def decide(self, reached: Progress) -> Decision:
        """The next round, with the step size that beta allows.

        Raises:
            InputError: nothing is known of beta, or the proximal term would pull past its centre.
        """
        beta = self.controller.smoothness or beta_of(reached.course_state)
        if not beta:
            raise InputError(
                "control.smoothness",
                "estimated",
                "can't be estimated, as no gradient changes with the model; declare it",
            )
        control, _ = plan_round(self.controller, self.states[reached.state.round], beta)
        schedule = self.controller.schedule
        check_pull(schedule.proximal, control.step_size)
        plan = replace(
            self.rounds[reached.state.round],
            step_size=control.step_size,
            proximal=schedule.proximal,
            center=schedule.center,
        )
        return Decision(plan, logged(control))

    def learn(self, state: State, course_state: CourseState) -> CourseState:
        if self.controller.smoothness:
            return course_state
        gradients = gradients_at(self.simulation, state.weights).gradients
        return observe(course_state, state.weights, gradients)


def logged(control: RoundControl) -> dict[str, float]:
    """A round's decisions and what they rest on, by the name of their metric."""
    return {
        "K": control.choice.local_steps,
        "eta": control.step_size,
        "beta": control.smoothness,
        "remaining": control.remaining,
        "s_trusted": control.choice.trusted,
        "s_untrusted": control.choice.untrusted,
        **vars(control.terms),
    }


def _links(run: PlainExperiment) -> Links:
    config, network, plans = run.config, run.plan.network, run.plan.schedule.round_plans()
    lock_step = lock_step_of(get_mechanism(config.privacy.mechanism), network, plans)
    return Links(network, lock_step, run.model.n_parameters, config.resources)


def prices_of(run: PlainExperiment) -> Spread:
    """What a controller plans by whose gap is of the mechanism's noise; an `InputError` where
    nothing is known of beta, or the target of epsilon can't be met."""
    config, network, schedule = run.config, run.plan.network, run.plan.schedule
    control, sizes, rates = config.control, run.samples.sizes, run.sampling_rates
    mechanism, norm = get_mechanism(config.privacy.mechanism), config.privacy.clipping_norm

    def calibrate(taking_part: Network, plans: Sequence[RoundPlan]) -> CalibratedMechanism:
        threat = threat_of(config, run.plan)
        premises = Premises(taking_part, sizes, rates, plans, config.privacy, threat)
        return build_mechanism(premises)

    landscape, links, total = _landscape(run), _links(run), longest(schedule, control)
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
    return Spread(grid, landscape, run.model.n_parameters, laws, samples)


def _landscape(run: PlainExperiment) -> Landscape:
    config, model, (shape, n_classes) = run.config, run.model, run.classified
    smoothness = smoothness_of(config, model, shape)
    assert smoothness is not None  # the configuration refuses an estimate
    mean_curvature = smoothness
    if model.curvature_sum is not None:
        trace = model.curvature_sum * longest_squared(config, shape)
        mean_curvature = min(smoothness, trace / model.n_parameters)
    zeta = config.control.dissimilarity or config.privacy.clipping_norm
    return Landscape(smoothness, zeta, model.loss_of_equal_scores(n_classes), mean_curvature)


def planned_rounds(controller: Controller | None, most_rounds: int) -> pd.DataFrame:
    """What a controller decides of at most T rounds before training; no rows without one.

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
        """What chooses the rounds, if anything does; an `InputError` where nothing is known of
        beta, or the target of epsilon can't be met."""
        config, schedule, control = self.config, self.plan.schedule, self.config.control
        if not control.enabled:
            return None
        if control.gap == "mechanism":
            prices = prices_of(self)
            beta = prices.landscape.smoothness
            problem, gamma = plan_problem(prices.grid, prices.landscape, prices, schedule, control)
            return Controller(problem, schedule, smoothness=beta, step_parameter=gamma)
        rate = float(self.sampling_rates.max())
        problem = build_problem(_links(self), schedule, rate, config.privacy, control)
        known_beta = smoothness_of(config, self.model, self.input_shape)
        return Controller(problem, schedule, control.step_size_factor, smoothness=known_beta)

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
