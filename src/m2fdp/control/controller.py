"""The adaptive controller (J Sec. V): step size, local steps and participation, round by round.

Part I sets gamma^t from the estimate of beta, Part II solves (P). A run starts at K^1 with all
devices, and ends when tau local steps are done.

All of it is a function of network, configuration and the estimate of beta. How private that
estimate is, is up to whoever makes it: see `m2fdp.convergence.smoothness`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from m2fdp.config import ControlConfig, PrivacyConfig, ResourcesConfig
from m2fdp.control.problem import Choice, Problem, Terms, build_problem, solve, terms_at
from m2fdp.privacy.mechanisms import LockStep
from m2fdp.schedule.rounds import Center
from m2fdp.schedule.schedule import Schedule
from m2fdp.topology.network import Network


@dataclass(frozen=True, eq=False)
class Controller:
    """What a run's controller knows from the start.

    Attributes:
        problem: (P).
        step_size_factor: c; 1 is J's.
        proximal, center: of the proximal term, as in `RoundPlan`; no part of (P).
    """

    problem: Problem
    step_size_factor: float
    proximal: float = 0.0
    center: Center = "received"


@dataclass(frozen=True)
class ControllerState:
    """Between rounds.

    Attributes:
        rounds: how many are planned so far, t - 1.
        local_steps: K^(t-1); K^1 before the first round.
        remaining: tau^t; the run ends when it is 0.
    """

    rounds: int
    local_steps: int
    remaining: int


@dataclass(frozen=True)
class RoundControl:
    """What the controller decides for round t.

    Attributes:
        round: t.
        step_parameter: gamma^t.
        step_size: eta^t = gamma^t / sqrt(t + 1).
        choice: K^t and participation.
        terms: of (P), at the choice.
        smoothness: the estimate of beta that was used.
        remaining: tau^t, before this round.
    """

    round: int
    step_parameter: float
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
    return ControllerState(0, controller.problem.start.local_steps, controller.problem.total_steps)


def plan_round(
    controller: Controller, state: ControllerState, beta: float
) -> tuple[RoundControl, ControllerState]:
    """Decide the next round, and the state after it.

    Args:
        state: with remaining >= 1.
        beta: the present estimate, > 0.
    """
    problem, round_ = controller.problem, state.rounds + 1
    choice = _choose(problem, round_, state.remaining)
    gamma = step_parameter(
        controller.step_size_factor, beta, state.local_steps, problem.total_steps
    )
    control = RoundControl(
        round_,
        gamma,
        gamma / sqrt(round_ + 1),
        choice,
        terms_at(problem, choice, state.remaining),
        beta,
        state.remaining,
    )
    left = state.remaining - choice.local_steps
    return control, ControllerState(round_, choice.local_steps, left)


def planned_choices(controller: Controller, most_rounds: int) -> tuple[Choice, ...]:
    """What `plan_round` will choose in every round, until tau or the rounds are used up.

    Nothing in (P) depends on data or models, so K^t and participation are known before training:
    noise can be calibrated to them, and they give nothing away.
    """
    problem = controller.problem
    result: list[Choice] = []
    remaining = problem.total_steps
    while remaining > 0 and len(result) < most_rounds:
        result.append(_choose(problem, len(result) + 1, remaining))
        remaining -= result[-1].local_steps
    return tuple(result)


def _choose(problem: Problem, round_: int, remaining: int) -> Choice:
    return problem.start if round_ == 1 else solve(problem, remaining)


def build_controller(
    network: Network,
    lock_step: LockStep,
    schedule: Schedule,
    n_parameters: int,
    sampling_rate: float,
    resources: ResourcesConfig,
    privacy: PrivacyConfig,
    config: ControlConfig,
) -> Controller:
    """The configured controller of a run; for the arguments see `build_problem`.

    `m2fdp.experiments.checks.check_config` refuses networks and schedules that it is not made for.
    """
    problem = build_problem(
        network, lock_step, schedule, n_parameters, sampling_rate, resources, privacy, config
    )
    return Controller(problem, config.step_size_factor, schedule.proximal, schedule.center)
