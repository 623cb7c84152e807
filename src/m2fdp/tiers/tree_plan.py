"""Tiers below the servers of a tree, lock step by lock step, and how long rounds take.

D's clock with a minibatch in the place of a shard. A device that splits sends, at every local step,
its minibatch's activations and labels, and computes its part while its server computes the rest. In
a lock-step group the gradient of its part goes up, and the part comes down, at every step too;
whoever steps alone sends its part when models are aggregated. A device that does not split computes
the whole model; it sends its model when models are aggregated, or, in a lock-step group, its
gradient at every step. A round waits for the slowest device, and then for the servers' own links.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from m2fdp.core.config import ResourcesConfig
from m2fdp.core.privacy.mechanisms import LockStep
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import generator
from m2fdp.core.topology.network import Network
from m2fdp.costs.resources import Cost, Links, round_costs, watts
from m2fdp.tiers import scheduler
from m2fdp.tiers.clock import GIGA, RoundTimes, clients_of, draw_noise, draw_profiles, round_times
from m2fdp.tiers.config import ClockConfig, TieringConfig
from m2fdp.tiers.costs import ModuleCosts, TierCosts
from m2fdp.tiers.course import TierCourse, in_tiers, waiting


@dataclass(frozen=True)
class TreeTiers:
    """Who trains how much, before anything is trained.

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

    @property
    def seconds(self) -> np.ndarray:
        """float64 (T,), of the slowest device."""
        return np.asarray(self.took.max(axis=1))


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
        network: nodes, whose `splits` says which devices may split; others have the whole model.
        lock_step: which devices step together.
        minibatches: float64 (N_L,), the expected records of a device's local step.
        plans: the rounds t = 1…T.
    """
    n_devices, rounds = len(minibatches), len(plans)
    order = generator(seed, "profile-order").permutation(n_devices)
    profiles = draw_profiles(clock, n_devices, rounds, seed)[:, order]
    noise = draw_noise(clock.noise, n_devices, rounds, seed)
    in_group = lock_step.nodes[lock_step.group_of, 0] < network.tree.depth
    allowed, first = _choices(tiering, costs.n_tiers - 1, network)
    devices, servers = np.arange(n_devices), network.tree.parents[-1]
    tiers = np.empty((rounds, n_devices), dtype=np.int64)
    took, (sending, computing) = np.empty((rounds, n_devices)), np.empty((2, rounds))
    state = scheduler.no_observations(*allowed.shape)
    profile = scheduler.tier_profile(tiering, costs, clock.server_gflops * GIGA)
    for number, plan in enumerate(plans):
        steps = len(plan.layers)
        # A lock-step group's parts travel at every step, and others' when models are aggregated.
        aggregations = sum(layer is not None for layer in plan.layers)
        both = [replace(costs, model_bytes=costs.model_bytes * n) for n in (steps, aggregations)]
        clients = clients_of(clock, minibatches * steps, profiles[number])
        times = _either(in_group, [round_times(each, clients, clock) for each in both])
        times = times.noisy(noise[number])
        seconds = np.full(allowed.shape, np.nan)
        if tiering.schedule == "oracle":
            seconds = times.parallel()
        elif tiering.schedule == "dynamic":
            estimates = [
                scheduler.estimate(state, tiering, profile, each, clients.records) for each in both
            ]
            seconds = np.where(in_group[:, None], *estimates)
        chosen = scheduler.assign(np.where(allowed, seconds, np.inf), first)
        at = (devices, chosen - 1)
        server = times.server[at]
        if clock.server == "shared":
            server = np.bincount(servers, weights=server)[servers]
        tiers[number] = chosen
        took[number] = np.maximum(times.client[at], server) + times.communication[at]
        sending[number] = times.communication[at].sum()
        share = costs.client_flops / costs.client_flops[-1]
        computing[number] = steps * share[chosen - 1].sum()
        state = scheduler.observe(state, tiering, chosen, times.client[at], clients.rates)
    return TreeTiers(tiers, took, sending, computing)


def tree_course(
    tiers: TreeTiers, links: Sequence[Links], plans: Sequence[RoundPlan], config: ResourcesConfig
) -> TierCourse:
    """What the rounds cost, and what is told of them: devices, then servers' links, by those
    of each network. A device's energy is its radio's and, of a local step's, its part of the FLOPs.
    """
    radio, costs, logged = watts(config.wireless_power_dbm), [], []
    every = range(1, int(tiers.tiers.max()) + 1)
    for number, servers in enumerate(round_costs(links, plans, Links.servers)):
        took = tiers.took[number]
        energy = radio * tiers.sending[number] + config.step_energy_j * tiers.computing[number]
        seconds = float(took.max()) + servers.delay_s
        costs.append(Cost(float(energy) + servers.energy_j, seconds))
        counts = in_tiers(tiers.tiers[number], every)
        logged.append({"round_s": seconds, "waiting_s": waiting(took), **counts})
    return TierCourse(tiers.tiers, tuple(costs), tuple(logged))


def _choices(
    tiering: TieringConfig, n_cuts: int, network: Network
) -> tuple[np.ndarray, np.ndarray]:
    """The tiers that each device may be in, bool (N_L, n + 1), and where it starts, (N_L,)."""
    splits = np.zeros(network.tree.n_devices, dtype=bool)
    if network.splits is not None:
        splits = network.splits
    fewest = n_cuts - min(tiering.tiers, n_cuts)  # cuts below the lowest of the M highest
    tiers = np.arange(1, n_cuts + 2)
    of_splits = (tiers > fewest) & ((tiers <= n_cuts) | tiering.whole_model)
    allowed = np.where(splits[:, None], of_splits, tiers > n_cuts)
    start = fewest + (tiering.static_tier or tiering.initial_tier)
    return allowed, np.where(splits, min(start, n_cuts + tiering.whole_model), n_cuts + 1)


def _either(in_group: np.ndarray, times: Sequence[RoundTimes]) -> RoundTimes:
    """The first's of devices in a lock-step group, bool (N_L,), and the second's of others."""
    parts = ([getattr(each, part.name) for each in times] for part in fields(RoundTimes))
    return RoundTimes(*(np.where(in_group[:, None], *pair) for pair in parts))
