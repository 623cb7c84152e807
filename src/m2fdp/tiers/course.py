"""The course of a run in tiers: who trains what, and what each round costs, before any training.

Tiers and times follow from FLOPs, bytes, profiles, shard sizes and keyed noise. No weight and no
record is looked at, so nothing of it is private, and a run that goes on has the same course.

Below the servers of a tree D's clock counts a minibatch in the place of a shard. A device that
splits sends, at every local step, its minibatch's activations and labels, and computes its part
while its server computes the rest. In a lock-step group the gradient of its part goes up, and the
part comes down, at every step too; whoever steps alone sends its part when models are aggregated. A
device that does not split computes the whole model; it sends its model when models are aggregated,
or, in a lock-step group, its gradient at every step. A round waits for the slowest device, and then
for the servers' own links.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from m2fdp.core.config import Config
from m2fdp.core.engine.training import Decision, Progress, RoundPolicy, RoundRecord
from m2fdp.core.privacy.mechanisms import LockStep
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import generator
from m2fdp.core.topology.network import Network
from m2fdp.costs.config import ResourcesConfig
from m2fdp.costs.resources import Cost, Links, round_costs, watts
from m2fdp.tiers.clock import (
    ModuleCosts,
    TierCosts,
    clients_of,
    draw_noise,
    draw_profiles,
    resnet_costs,
    round_times,
)
from m2fdp.tiers.config import TRAINED, ClockConfig, PlateauConfig, TieringConfig
from m2fdp.tiers.plan import oracle_of, seconds_of, timed, world_of
from m2fdp.tiers.scheduler import ABSENT, Scheduled, schedule
from m2fdp.tiers.ways import Way


@dataclass(frozen=True, eq=False)
class TierCourse:
    """A run in tiers, round by round. `cuts` int64 (R, K): the modules that each client trains
    itself (-1 = absent). `costs`: what the round costs. `logged`: values by metric."""

    cuts: np.ndarray
    costs: tuple[Cost, ...]
    logged: tuple[Mapping[str, float], ...]


@dataclass(frozen=True)
class PlannedTiers(RoundPolicy):
    """Planned rounds, with steps that a plateau makes smaller."""

    rounds: tuple[RoundPlan, ...]
    course: TierCourse
    plateau: PlateauConfig

    def decide(self, reached: Progress) -> Decision:
        """The next round, as planned; its step size follows from the rows that are there."""
        number = reached.state.round
        plan, logged = self.rounds[number], self.course.logged[number]
        times = reductions(reached.records, self.plateau)
        eta = plan.step_size * self.plateau.factor**times
        return Decision(replace(plan, step_size=eta), {**logged, "eta": eta})


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
    """The course of a run in epochs: of the `trained` model's modules, the numbers of the clients'
    records, int64 (K,), and who takes part, bool (R, K). Profiles and noise are the seed's,
    whatever trains."""
    clock, tiering, resources = config.clock, config.tiering, config.resources
    training = config.training
    # An epoch more computes, and sends activations, once more.
    epochs = training.local_epochs if way.averaged else 1
    world = world_of(clock, config.seed, sizes * float(epochs), present)
    modules = clock_costs(clock, trained)
    of_tiers = way.costs(modules, clock, tiering, training.local_epochs)
    oracle = seconds_of(way, oracle_of(tiering), clock, modules, world) if way.tiered else None
    steps = epochs * np.ceil(sizes / (training.batch_size or sizes.max()))
    cuts, costs, logged = np.full(present.shape, ABSENT, dtype=np.int64), [], []
    planned = timed(way, tiering, clock, modules, world, training.local_epochs)
    for number, (tiers, times, took) in enumerate(planned):
        who = present[number]
        cut = of_tiers.modules[tiers[who] - 1]
        cuts[number, who] = len(modules.flops) if way.whole else cut
        share = of_tiers.client_flops[tiers[who] - 1] / modules.flops.sum()
        sending, computing = times.at(tiers).communication.sum(), (steps[who] * share).sum()
        costs.append(Cost(_energy(sending, computing, resources), float(took.max())))
        told = {} if oracle is None else {"t_max_s": float(oracle[number])}
        logged.append(_told(took) | told | (_in_tiers(tiers, of_tiers.n_tiers) if told else {}))
    return TierCourse(cuts, tuple(costs), tuple(logged))


@dataclass(frozen=True)
class TreeTiers:
    """Who trains how much below the servers of a tree, before anything is trained.

    Attributes:
        tiers: int64 (T, N_L): the cut of the trained model, 1 … n; n + 1 = the device keeps it all.
        took: float64 (T, N_L), seconds of each device, without the servers' links.
        sending: float64 (T,), seconds that all devices' links are in use.
        computing: float64 (T,), local steps of all devices, each of its part of the FLOPs.
    """

    tiers: np.ndarray
    took: np.ndarray
    sending: np.ndarray
    computing: np.ndarray


def billed_cuts(costs: ModuleCosts, n_cuts: int) -> np.ndarray:
    """Which cuts of a model whose times are shown stand for the n of the one that is trained:
    spread evenly, int64 (n,)."""
    places = np.linspace(1, len(costs.head_flops), n_cuts) if n_cuts > 1 else np.ones(1)
    return np.floor(places + 0.5).astype(np.int64)


def plan_tree_tiers(
    tiering: TieringConfig,
    clock: ClockConfig,
    costs: TierCosts,
    network: Network,
    lock_step: LockStep,
    minibatches: np.ndarray,
    plans: Sequence[RoundPlan],
    seed: int,
) -> TreeTiers:
    """The tiers and seconds of all rounds.

    Profiles are dealt to devices in an order of the seed's, or all devices of a server would have
    the same.

    Args:
        costs: tiers 1 … n of the model that is billed, and the whole of it.
        network: its `splits` say which devices may split; others have the whole model.
        minibatches: float64 (N_L,), the expected records of a device's local step.
    """
    n_devices, rounds = len(minibatches), len(plans)
    order = generator(seed, "profile-order").permutation(n_devices)
    profiles = draw_profiles(clock, n_devices, rounds, seed)[:, order]
    noise = draw_noise(clock.noise, n_devices, rounds, seed)
    in_group = lock_step.nodes[lock_step.group_of, 0] < network.tree.depth
    everybody, servers = np.ones(n_devices, dtype=bool), network.tree.parents[-1]

    def told() -> Iterator[Scheduled]:
        for number, plan in enumerate(plans):
            steps = len(plan.layers)
            # A lock-step group's parts travel at every step, and others' at aggregations.
            aggregations = sum(layer is not None for layer in plan.layers)
            sent = costs.model_bytes * np.where(in_group, steps, aggregations)[:, None]
            clients = clients_of(clock, minibatches * steps, profiles[number])
            billed = replace(costs, model_bytes=sent)
            times = round_times(billed, clients, clock, noise[number])
            yield billed, clients, times, everybody

    tiers = np.empty((rounds, n_devices), dtype=np.int64)
    took, (sending, computing) = np.empty((rounds, n_devices)), np.empty((2, rounds))
    share = costs.client_flops / costs.client_flops[-1]
    allowed, first = _choices(tiering, costs.n_tiers - 1, network)
    for number, (chosen, times) in enumerate(schedule(tiering, clock, first, allowed, told())):
        at = times.at(chosen)
        if clock.server == "shared":
            at = replace(at, server=np.bincount(servers, weights=at.server)[servers])
        tiers[number], took[number] = chosen, at.parallel()
        sending[number] = at.communication.sum()
        computing[number] = len(plans[number].layers) * share[chosen - 1].sum()
    return TreeTiers(tiers, took, sending, computing)


def tree_course(
    tiers: TreeTiers, links: Sequence[Links], plans: Sequence[RoundPlan], config: ResourcesConfig
) -> TierCourse:
    """What the rounds cost, and what is told of them: devices, then the links of servers."""
    costs, logged = [], []
    for number, servers in enumerate(round_costs(links, plans, Links.servers)):
        took = tiers.took[number]
        energy = _energy(tiers.sending[number], tiers.computing[number], config)
        seconds = float(took.max()) + servers.delay_s
        costs.append(Cost(energy + servers.energy_j, seconds))
        counts = _in_tiers(tiers.tiers[number], int(tiers.tiers.max()))
        logged.append(_told(took) | {"round_s": seconds} | counts)
    return TierCourse(tiers.tiers, tuple(costs), tuple(logged))


def _choices(
    tiering: TieringConfig, n_cuts: int, network: Network
) -> tuple[np.ndarray, np.ndarray]:
    """The tiers that each device may be in, bool (N_L, n + 1), and where it starts, (N_L,)."""
    nobody = np.zeros(network.tree.n_devices, dtype=bool)
    splits = nobody if network.splits is None else network.splits
    fewest = n_cuts - min(tiering.tiers, n_cuts)  # cuts below the lowest of the M highest
    tiers = np.arange(1, n_cuts + 2)
    of_splits = (tiers > fewest) & ((tiers <= n_cuts) | tiering.whole_model)
    allowed = np.where(splits[:, None], of_splits, tiers > n_cuts)
    start = fewest + (tiering.static_tier or tiering.initial_tier)
    return allowed, np.where(splits, min(start, n_cuts + tiering.whole_model), n_cuts + 1)


def _told(took: np.ndarray) -> dict[str, float]:
    """What a round takes, and how long clients wait for the slowest on average, from (n,)."""
    return {"round_s": float(took.max()), "waiting_s": float((took.max() - took).mean())}


def _in_tiers(chosen: np.ndarray, highest: int) -> dict[str, float]:
    """How many clients are in each tier, by the name of the metric."""
    return {f"tier_{tier}": float((chosen == tier).sum()) for tier in range(1, highest + 1)}


def _energy(sending: float, computing: float, resources: ResourcesConfig) -> float:
    """Joules of all clients: their radios while links are busy, and steps by share of FLOPs."""
    radio = watts(resources.wireless_power_dbm) * float(sending)
    return radio + resources.step_energy_j * float(computing)
