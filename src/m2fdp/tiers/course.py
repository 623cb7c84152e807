"""The course of a run in tiers: who trains what, and what each round costs, before any training.

Tiers and times follow from FLOPs, bytes, profiles, shard sizes and keyed noise. No weight and no
record is looked at, so nothing of it is private, and a run that goes on has the same course.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from m2fdp.core.config import Config, ResourcesConfig
from m2fdp.core.engine.process import State
from m2fdp.core.engine.training import CourseState, Decision, Progress, RoundRecord
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.costs.resources import Cost, totals, watts
from m2fdp.tiers.clock import RoundTimes, clients_of, draw_noise, draw_profiles, round_times
from m2fdp.tiers.config import TRAINED, ClockConfig, PlateauConfig
from m2fdp.tiers.costs import ModuleCosts, resnet_costs
from m2fdp.tiers.plan import ABSENT, World, plan_tiers
from m2fdp.tiers.ways import Way


@dataclass(frozen=True, eq=False)
class TierCourse:
    """What a run in tiers does, round by round: the modules int64 (R, K) that each client trains
    itself (-1 = absent), what it costs, and values by the name of the metric."""

    cuts: np.ndarray
    costs: tuple[Cost, ...]
    logged: tuple[Mapping[str, float], ...]

    @property
    def totals(self) -> list[Cost]:
        """What the rounds have cost together after each of t = 1…T."""
        return totals(self.costs)


@dataclass(frozen=True)
class PlannedTiers:
    """Planned rounds, with steps that a plateau makes smaller (a `RoundPolicy`)."""

    rounds: tuple[RoundPlan, ...]
    course: TierCourse
    plateau: PlateauConfig

    def start(self, state: State) -> CourseState:
        return {}

    def decide(self, reached: Progress) -> Decision:
        """The next round, as planned; its step size follows from the rows that are there."""
        number = reached.state.round
        plan, logged = self.rounds[number], self.course.logged[number]
        times = reductions(reached.records, self.plateau)
        eta = plan.step_size * self.plateau.factor**times
        return Decision(replace(plan, step_size=eta), {**logged, "eta": eta})

    def learn(self, state: State, course_state: CourseState) -> CourseState:
        return course_state


def reductions(records: Sequence[RoundRecord], plateau: PlateauConfig) -> int:
    """How often the step size is to be reduced, by the accuracies so far."""
    best, waited, times = -np.inf, 0, 0
    for record in records:
        if record.accuracy > best + plateau.threshold * abs(best) or best == -np.inf:
            best, waited = record.accuracy, 0
        else:
            waited += 1
        if waited > plateau.patience:
            waited, times = 0, times + 1
    return times


def clock_costs(clock: ClockConfig, trained: ModuleCosts) -> ModuleCosts:
    """Whose FLOPs and bytes are billed: the trained model's, or those of another."""
    return trained if clock.model == TRAINED else resnet_costs(clock.depth, clock.width)


def plan_course(
    config: Config, way: Way, trained: ModuleCosts, sizes: np.ndarray, present: np.ndarray
) -> TierCourse:
    """The course of a run.

    A profile and the noise are those of a client, whatever trains; one seed has one world.

    Args:
        trained: modules of the model that is trained.
        sizes: int64 (K,), the clients' records.
        present: bool (R, K), who takes part.
    """
    clock, rounds, n_clients = config.clock, *present.shape
    # An epoch more computes, and sends activations, once more.
    epochs = config.training.local_epochs if way.averaged else 1
    world = World(
        sizes * float(epochs),
        draw_profiles(clock, n_clients, rounds, config.seed),
        draw_noise(clock.noise, n_clients, rounds, config.seed),
        present,
    )
    modules = clock_costs(clock, trained)
    planned = plan_tiers(config.tiering, clock, world, modules) if way.tiered else None
    tiers = way.costs(modules, clock, config.tiering, config.training.local_epochs)
    cuts = np.full(present.shape, ABSENT, dtype=np.int64)
    costs, logged = [], []
    batch = config.training.batch_size or sizes.max()
    steps = epochs * np.ceil(sizes / batch)
    for number in range(rounds):
        who = present[number]
        chosen = np.ones(who.sum(), np.int64) if planned is None else planned.tiers[number, who]
        cuts[number, who] = len(modules.flops) if way.whole else tiers.modules[chosen - 1]
        clients = clients_of(clock, world.records[who], world.profiles[number, who])
        times = round_times(tiers, clients, clock).noisy(world.noise[number, who])
        took = way.seconds(times, chosen, clock)
        share = tiers.client_flops[chosen - 1] / modules.flops.sum()
        energy = _energy(times, chosen, steps[who] * share, config.resources)
        seconds = float(took.max())
        costs.append(Cost(energy, seconds))
        of_tiers = {}
        if planned is not None:
            every = range(1, tiers.n_tiers + 1)
            of_tiers = {"t_max_s": float(planned.oracle[number]), **in_tiers(chosen, every)}
        logged.append({"round_s": seconds, "waiting_s": waiting(took), **of_tiers})
    return TierCourse(cuts, tuple(costs), tuple(logged))


def waiting(seconds: np.ndarray) -> float:
    """How long clients wait for the slowest on average, from what each takes, (K,)."""
    return float((seconds.max() - seconds).mean())


def in_tiers(chosen: np.ndarray, every: range) -> dict[str, float]:
    """How many clients are in each of these tiers, by the name of the metric."""
    return {f"tier_{tier}": float((chosen == tier).sum()) for tier in every}


def _energy(
    times: RoundTimes, chosen: np.ndarray, steps: np.ndarray, resources: ResourcesConfig
) -> float:
    """Joules of all clients: their radios while links are busy, and steps by share of FLOPs."""
    sending = times.communication[np.arange(len(chosen)), chosen - 1].sum()
    radio = watts(resources.wireless_power_dbm) * float(sending)
    return radio + resources.step_energy_j * float(steps.sum())
