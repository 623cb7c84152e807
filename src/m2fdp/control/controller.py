"""The adaptive controller (J Sec. V): step size, local steps and participation, round by round.

J's Part I sets gamma^t from beta, its Part II solves (P); a run starts at K^1 with all devices, and
ends when tau local steps are done. With the noise that the mechanism draws (P) chooses gamma and
tau before training, and the first round as the others.

All of it is a function of network, configuration and beta. How private an estimate of beta is, is
up to whoever makes it: see `m2fdp.convergence.smoothness`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from m2fdp.control.gaps import NOTHING, History
from m2fdp.control.problem import Choice, Problem, Terms, solve, terms_at
from m2fdp.core.schedule.schedule import Schedule


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
    """Between rounds.

    Attributes:
        rounds: how many are planned so far, t - 1.
        local_steps: K^(t-1); K^1 before the first round.
        remaining: tau^t; the run ends when it is 0.
        history: what the finished rounds have settled of the gap.
    """

    rounds: int
    local_steps: int
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


def step_parameter(factor: float, beta: float, local_steps: int, total_steps: int) -> float:
    """gamma^t = c min(1/K^(t-1), 1/tau)/beta (J Sec. V-A, c = 1); as K <= tau, tau decides."""
    return factor * min(1 / local_steps, 1 / total_steps) / beta


def before_training(controller: Controller) -> ControllerState:
    """Before the first round."""
    problem = controller.problem
    return ControllerState(0, problem.grid.start.local_steps, problem.total_steps)


def plan_round(
    controller: Controller, state: ControllerState, beta: float
) -> tuple[RoundControl, ControllerState]:
    """Decide the next round, and the state after it.

    Args:
        state: what has been planned so far, with remaining >= 1.
        beta: the present estimate, > 0.
    """
    problem = controller.problem
    choice, after = _choose(problem, state)
    gamma = controller.step_parameter
    if gamma is None:
        factor, total = controller.step_size_factor, problem.total_steps
        gamma = step_parameter(factor, beta, state.local_steps, total)
    control = RoundControl(
        after.rounds,
        gamma / sqrt(after.rounds + 1),
        choice,
        terms_at(problem, choice, state.remaining, state.history),
        beta,
        state.remaining,
    )
    return control, after


def planned(controller: Controller, most_rounds: int) -> tuple[tuple[ControllerState, Choice], ...]:
    """The state before every round and what is chosen for it, until tau or the rounds are used up.

    Nothing in (P) depends on data or models, so K^t and participation are known before training:
    noise can be calibrated to them, and they give nothing away.
    """
    state = before_training(controller)
    rounds: list[tuple[ControllerState, Choice]] = []
    while state.remaining > 0 and len(rounds) < most_rounds:
        choice, after = _choose(controller.problem, state)
        rounds.append((state, choice))
        state = after
    return tuple(rounds)


def _choose(problem: Problem, state: ControllerState) -> tuple[Choice, ControllerState]:
    """The choice of the next round, and the state after it."""
    if state.rounds == 0 and problem.starts_there:
        choice = problem.grid.start
    else:
        choice = solve(problem, state.remaining, state.history)
    steps = choice.local_steps
    history = problem.gap.after(state.history, problem.grid.place(choice), steps)
    return choice, ControllerState(state.rounds + 1, steps, state.remaining - steps, history)
