"""The run of an experiment: its rounds, how they are decided, and what is measured meanwhile."""

from __future__ import annotations

from math import nan

from torch import Tensor

from m2fdp.config import Config
from m2fdp.control.controller import Controller
from m2fdp.control.policy import ControlledRounds
from m2fdp.costs.clock import totals
from m2fdp.costs.resources import LinkClock
from m2fdp.experiments.tiers import process_of
from m2fdp.schedule.rounds import RunPlan
from m2fdp.simulation.evaluation import evaluate
from m2fdp.simulation.executor import ExecutionSettings
from m2fdp.simulation.simulation import Simulation, SimulationProcess
from m2fdp.simulation.training import FixedRounds, Measures, RoundPolicy, Run
from m2fdp.simulation.tree_process import build_process
from m2fdp.simulation.workers import available_cores
from m2fdp.tiering.course import PlannedTiers, TierCourse
from m2fdp.tiering.tree_plan import TreeTiers, tree_course


def process_for(
    config: Config, simulation: Simulation, course: TierCourse | None
) -> SimulationProcess:
    """How the rounds are computed.

    Args:
        course: of a run in tiers.
    """
    training, workers = config.training, config.threads or available_cores()
    if course is not None:
        return process_of(config, simulation, course, workers)
    settings = ExecutionSettings(training.backend, training.chunk_size, workers)
    return build_process(simulation, settings)


def run_of(
    config: Config,
    process: SimulationProcess,
    run_plan: RunPlan,
    affordable: int,
    evaluated: tuple[Tensor, Tensor],
    controller: Controller | None,
    course: TierCourse | None,
    splits: TreeTiers | None,
) -> Run:
    """The rounds, how they are decided, and what is measured meanwhile.

    Args:
        affordable: rounds that the budget affords.
        evaluated: features and labels of the records that the cloud evaluates on.
        controller: what decides the rounds, if anything does.
        course: of a run in tiers.
        splits: of a run whose devices split their model at every step.
    """
    simulation, rounds = process.simulation, run_plan.rounds
    model, mechanism = simulation.model, simulation.mechanisms[0]
    lock_steps = [each.lock_step for each in simulation.mechanisms]
    clock = LinkClock(simulation.networks, lock_steps, model.n_parameters, config.resources)
    if splits is not None:
        course = tree_course(splits, clock, rounds, config.resources)
    costs = totals(clock, rounds) if course is None else course.totals
    policy: RoundPolicy = FixedRounds(rounds)
    if controller is not None:
        policy = ControlledRounds(controller, rounds, simulation)
    elif course is not None:
        policy = PlannedTiers(rounds, course, config.training.plateau)
    measures = Measures(
        config.training.evaluate_every,
        lambda weights: evaluate(model, weights, *evaluated, process.executor.workers),
        lambda round_: (costs[round_ - 1].energy_j, costs[round_ - 1].delay_s),
        mechanism.epsilon if mechanism.private else lambda round_: nan,
    )
    return Run(process, policy, affordable, measures)
