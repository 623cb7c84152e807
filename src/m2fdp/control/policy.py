"""Controlled rounds: planned before training, and decided one after another (J Sec. V)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from m2fdp.control.controller import (
    Controller,
    ControllerState,
    RoundControl,
    plan_round,
    planned,
)
from m2fdp.control.problem import present_devices, with_present
from m2fdp.convergence.measurement import first_look, gradients_at
from m2fdp.convergence.smoothness import from_tensors, observe
from m2fdp.core.engine.process import State
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.engine.training import CourseState, Decision, Progress
from m2fdp.core.errors import InputError
from m2fdp.core.schedule.rounds import RoundPlan, RunPlan, check_pull
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import Network


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
        simulation: parts of the run, whose gradients are looked at where the controller does not
            know beta: then it is estimated after every round.
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
        return first_look(self.simulation, state.weights, gradients).tensors()

    def decide(self, reached: Progress) -> Decision:
        """The next round, with the step size that beta allows.

        Raises:
            InputError: nothing is known of beta, or the proximal term would pull past its centre.
        """
        beta = self.controller.smoothness or from_tensors(reached.course_state).beta
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
        return observe(from_tensors(course_state), state.weights, gradients).tensors()


def logged(control: RoundControl) -> dict[str, float]:
    """A round's decisions and what they rest on, by the name of their metric."""
    terms = control.terms
    return {
        "K": control.choice.local_steps,
        "eta": control.step_size,
        "beta": control.smoothness,
        "remaining": control.remaining,
        "s_trusted": control.choice.trusted,
        "s_untrusted": control.choice.untrusted,
        "energy_term_j": terms.energy_j,
        "delay_term_s": terms.delay_s,
        "gap_term": terms.gap,
        "energy_share": terms.energy_share,
        "delay_share": terms.delay_share,
        "gap_share": terms.gap_share,
        "objective": terms.objective,
    }
