"""The adaptive controller (J Sec. V): step size, local steps and participation, round by round.

J's Part I sets gamma^t from beta, its Part II solves (P); a run starts at K^1 with all devices, and
ends when tau local steps are done. With the noise that the mechanism draws (P) chooses gamma and
tau before training, and the first round as the others.

All of it is a function of network, configuration and beta. How private an estimate of beta is, is
up to whoever makes it: see `m2fdp.convergence.measurement`.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

from m2fdp.control.gaps import NOTHING, History
from m2fdp.control.problem import (
    Choice,
    Problem,
    Terms,
    present_devices,
    solve,
    terms_at,
    with_present,
)
from m2fdp.convergence.measurement import beta_of, first_look, gradients_at, observe
from m2fdp.core.engine.process import Simulation, State
from m2fdp.core.engine.training import CourseState, Decision, Progress
from m2fdp.core.errors import InputError
from m2fdp.core.schedule.rounds import RoundPlan, RunPlan, check_pull
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import Network


@dataclass(frozen=True, eq=False)
class Controller:
    """What a run's controller knows from the start.

    Attributes:
        problem: (P).
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
    """Decide the next round, and the state after it.

    Args:
        state: what has been planned so far, with remaining >= 1.
        beta: the present estimate, > 0.
    """
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
    """What the controller will choose, in at most the schedule's rounds.

    Args:
        network: a network in which all devices take part.
    """
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
