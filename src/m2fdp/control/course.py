"""The rounds of a run: planned before training, and trained one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

from m2fdp.config import ResourcesConfig
from m2fdp.control.controller import (
    Controller,
    ControllerState,
    RoundControl,
    plan_round,
    planned_choices,
)
from m2fdp.control.problem import Choice, present_devices
from m2fdp.convergence.measurement import first_look, gradients_at
from m2fdp.convergence.smoothness import Smoothness, observe
from m2fdp.costs.resources import Cost, round_cost
from m2fdp.errors import InputError
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.schedule.schedule import Schedule
from m2fdp.simulation.engine import run_round
from m2fdp.simulation.simulation import Simulation, with_participation
from m2fdp.simulation.training import Course, Progress, Round, equal_rounds
from m2fdp.topology.network import Network


@dataclass(frozen=True, eq=False)
class RunPlan:
    """All of a run's rounds that is known before training.

    Attributes:
        networks: one for every set of numbers of devices that take part.
        schedule: of a round without a controller.
        rounds: t = 1…T, each with the number of its network. In a controlled run step sizes
            are not known yet; all privacy laws are in units of them, so any will do.
        controller: or None.
    """

    networks: tuple[Network, ...]
    schedule: Schedule
    rounds: tuple[RoundPlan, ...]
    controller: Controller | None = None


def fixed_plan(network: Network, schedule: Schedule) -> RunPlan:
    """Every round as scheduled."""
    return RunPlan((network,), schedule, schedule.round_plans())


def controlled_plan(controller: Controller, network: Network, schedule: Schedule) -> RunPlan:
    """What the controller will choose, in at most the schedule's rounds.

    Args:
        network: in which all devices take part.
    """
    networks: dict[tuple[int, int], Network] = {}
    rounds = []
    for round_, choice in enumerate(planned_choices(controller, schedule.rounds), start=1):
        sizes = (choice.trusted, choice.untrusted)
        if sizes not in networks:
            networks[sizes] = _taking_part(network, choice)
        plan = _round_schedule(schedule, choice.local_steps, 1.0).round_plan(round_)
        rounds.append(replace(plan, network=list(networks).index(sizes)))
    return RunPlan(tuple(networks.values()), schedule, tuple(rounds), controller)


def run_course(
    simulation: Simulation,
    plan: RunPlan,
    mechanisms: Sequence[CalibratedMechanism],
    resources: ResourcesConfig,
    smoothness: float | None,
) -> Course:
    """The planned rounds, as `m2fdp.simulation.training.train` wants them.

    Args:
        simulation: of the plan's first network.
        mechanisms: of each of the plan's networks.
        smoothness: beta where it is declared; else a controller estimates it after every round.
    """

    @cache
    def cost(network: int, local_steps: int) -> Cost:
        return round_cost(
            plan.networks[network],
            mechanisms[network].lock_step,
            replace(plan.schedule, local_steps=local_steps),
            simulation.model.n_parameters,
            resources,
        )

    if plan.controller is None:
        each = cost(0, plan.schedule.local_steps)
        return equal_rounds(simulation, each.energy_j, each.delay_s)
    simulations = [
        with_participation(simulation, network, mechanism)
        for network, mechanism in zip(plan.networks, mechanisms, strict=True)
    ]
    costs = (cost(round_.network, len(round_.layers)) for round_ in plan.rounds)
    bills = list(accumulate(costs, _sum))
    return _controlled(simulations, plan, plan.controller, bills, smoothness)


def _controlled(
    simulations: Sequence[Simulation],
    plan: RunPlan,
    controller: Controller,
    bills: Sequence[Cost],
    smoothness: float | None,
) -> Course:
    def course(reached: Progress) -> Iterator[Round]:
        state = reached.state
        between = _after(controller, plan.rounds[: state.round])
        seen = Smoothness(smoothness) if smoothness else _look_again(simulations[0], reached)
        for round_ in plan.rounds[state.round :]:
            if not seen.beta:
                raise InputError(
                    "control.smoothness",
                    None,
                    "can't be estimated, as no gradient changes with the model; declare it",
                )
            control, between = plan_round(controller, between, seen.beta)
            schedule = _round_schedule(plan.schedule, control.choice.local_steps, control.step_size)
            simulation = replace(simulations[round_.network], schedule=schedule)
            state = run_round(simulation, state)
            if not smoothness:
                gradients = gradients_at(simulation, state.weights).gradients
                seen = observe(seen, state.weights, gradients)
            bill = bills[state.round - 1]
            yield Round(state, bill.energy_j, bill.delay_s, _decisions(control), seen.beta)

    return course


def _look_again(simulation: Simulation, reached: Progress) -> Smoothness:
    """What has been seen of beta: nothing yet, or the estimate and the last look."""
    weights = reached.state.weights
    gradients = gradients_at(simulation, weights).gradients
    if reached.state.round == 0:
        return first_look(simulation, weights, gradients)
    return observe(Smoothness(reached.smoothness), weights, gradients)


def _after(controller: Controller, rounds: Sequence[RoundPlan]) -> ControllerState:
    """The controller's state after the first rounds of a plan."""
    steps = [len(round_.layers) for round_ in rounds]
    last = steps[-1] if steps else controller.problem.start.local_steps
    return ControllerState(len(steps), last, controller.problem.total_steps - sum(steps))


def _decisions(control: RoundControl) -> dict[str, float]:
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


def _taking_part(network: Network, choice: Choice) -> Network:
    present = present_devices(network, choice)
    everybody = (present == network.tree.n_children(network.tree.depth - 1)).all()
    return network if everybody else replace(network, participants=present)


def _round_schedule(schedule: Schedule, local_steps: int, step_size: float) -> Schedule:
    """The schedule of one round."""
    return replace(
        schedule, local_steps=local_steps, learning_rate=step_size, step_size_law="constant"
    )


def _sum(so_far: Cost, cost: Cost) -> Cost:
    return Cost(so_far.energy_j + cost.energy_j, so_far.delay_s + cost.delay_s)
