"""Tiers below the servers of a tree, lock step by lock step, and how long rounds take.

D's clock with a minibatch in the place of a shard. A device that splits sends, at every local step,
its minibatch's activations and labels, and computes its part while its server computes the rest. In
a lock-step group the gradient of its part goes up, and the part comes down, at every step too;
whoever steps alone sends its part when models are aggregated. A device that does not split computes
the whole model; it sends its model when models are aggregated, or, in a lock-step group, its
gradient at every step. A round waits for the slowest device, and then for the servers' own links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from m2fdp.config import ClockConfig, ResourcesConfig, TieringConfig
from m2fdp.costs.clock import Cost
from m2fdp.costs.profiles import draw_noise, draw_profiles
from m2fdp.costs.resources import LinkClock, watts
from m2fdp.privacy.mechanisms import LockStep
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.streams import generator
from m2fdp.tiering import scheduler
from m2fdp.tiering.clock import RoundTimes, clients_of, round_times
from m2fdp.tiering.costs import ModuleCosts, TierCosts, costs_of_cuts
from m2fdp.tiering.course import TierCourse
from m2fdp.topology.network import Network

_GIGA = 1e9


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
        slowest: np.ndarray = self.took.max(axis=1)
        return slowest

    @property
    def cuts(self) -> list[int]:
        """Those that are in use at some time."""
        cuts: list[int] = np.unique(self.tiers).tolist()
        return cuts


@dataclass(frozen=True)
class Billed:
    """Whose times are shown, and which of its cuts stands for each of the trained model's.

    Attributes:
        costs: of its modules.
        cuts: int64 (n,).
    """

    costs: ModuleCosts
    cuts: np.ndarray


def billed_at(costs: ModuleCosts, n_cuts: int) -> Billed:
    """A model whose times are shown for one that is trained and has n cuts: spread evenly."""
    most = len(costs.head_flops)
    places = np.linspace(1, most, n_cuts) if n_cuts > 1 else np.ones(1)
    return Billed(costs, np.floor(places + 0.5).astype(np.int64))


def plan_tree_tiers(
    tiering: TieringConfig,
    clock: ClockConfig,
    billed: Billed,
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
        network: whose `splits` says who may split; others have the whole model.
        lock_step: which devices step together.
        minibatches: float64 (N_L,), the expected records of a device's local step.
        plans: the rounds t = 1…T.
    """
    n_devices, rounds = len(minibatches), len(plans)
    order = generator(seed, "profile-order").permutation(n_devices)
    profiles = draw_profiles(clock, n_devices, rounds, seed)[:, order]
    noise = draw_noise(clock.noise, n_devices, rounds, seed)
    together = lock_step.nodes[lock_step.group_of, 0] < network.tree.depth
    allowed, first = _choices(tiering, len(billed.cuts), network)
    devices, servers = np.arange(n_devices), network.tree.parents[-1]
    tiers = np.empty((rounds, n_devices), dtype=np.int64)
    took, (sending, computing) = np.empty((rounds, n_devices)), np.empty((2, rounds))
    state = scheduler.no_observations(*allowed.shape)
    for number, plan in enumerate(plans):
        steps = len(plan.layers)
        costs = _by_step(billed, clock, plan)
        clients = clients_of(clock, minibatches * steps, profiles[number])
        exact = _either(together, [round_times(each, clients, clock) for each in costs])
        times = exact.noisy(noise[number])
        known = np.full(allowed.shape, np.nan)
        if tiering.schedule == "oracle":
            known = times.parallel()
        elif tiering.schedule == "dynamic":
            believed = [
                scheduler.estimate(state, tiering, _profile(each, clock), each, clients.records)
                for each in costs
            ]
            known = np.where(together[:, None], *believed)
        chosen = _assigned(known, allowed, first)
        at = (devices, chosen - 1)
        server = times.server[at]
        if clock.server == "shared":
            server = np.bincount(servers, weights=server)[servers]
        tiers[number] = chosen
        took[number] = np.maximum(times.client[at], server) + times.communication[at]
        sending[number] = times.communication[at].sum()
        share = costs[0].client_flops / costs[0].client_flops[-1]
        computing[number] = steps * share[chosen - 1].sum()
        state = scheduler.observe(state, tiering, chosen, times.client[at], clients.rates)
    return TreeTiers(tiers, took, sending, computing)


def tree_course(
    tiers: TreeTiers, clock: LinkClock, plans: Sequence[RoundPlan], config: ResourcesConfig
) -> TierCourse:
    """What the rounds cost, and what is told of them: devices, then servers' links.

    A device's energy is its radio's and, of a local step's, its part of the FLOPs.

    Args:
        clock: of the same network.
    """
    radio, costs, logged = watts(config.wireless_power_dbm), [], []
    every = range(1, int(tiers.tiers.max()) + 1)
    for number, plan in enumerate(plans):
        servers, took = clock.servers(plan), tiers.took[number]
        energy = radio * tiers.sending[number] + config.step_energy_j * tiers.computing[number]
        seconds = float(took.max()) + servers.delay_s
        costs.append(Cost(float(energy) + servers.energy_j, seconds))
        counts = {f"tier_{tier}": float((tiers.tiers[number] == tier).sum()) for tier in every}
        waiting = float((took.max() - took).mean())
        logged.append({"round_s": seconds, "waiting_s": waiting, **counts})
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


def _by_step(billed: Billed, clock: ClockConfig, plan: RoundPlan) -> list[TierCosts]:
    """Of a round, whose parts travel as often as a lock-step group's and as others' do."""
    costs = costs_of_cuts(billed.costs, billed.cuts, clock.label_bytes, whole_model=True)
    aggregations = sum(layer is not None for layer in plan.layers)
    return [
        replace(costs, model_bytes=costs.model_bytes * times)
        for times in (len(plan.layers), aggregations)
    ]


def _either(together: np.ndarray, times: Sequence[RoundTimes]) -> RoundTimes:
    """The first's of devices in a lock-step group, bool (N_L,), and the second's of others."""
    in_group, alone = times
    where = together[:, None]
    return RoundTimes(
        np.where(where, in_group.client, alone.client),
        np.where(where, in_group.server, alone.server),
        np.where(where, in_group.communication, alone.communication),
    )


def _profile(costs: TierCosts, clock: ClockConfig) -> scheduler.TierProfile:
    return scheduler.TierProfile(
        costs.client_flops, costs.server_flops / (clock.server_gflops * _GIGA)
    )


def _assigned(known: np.ndarray, allowed: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Tiers (N_L,), of the allowed ones; devices of which nothing is known are where they start.

    Args:
        known: (N_L, n + 1) seconds, or NaN.
    """
    seen = ~np.isnan(known).any(axis=1)
    chosen = first.copy()
    if seen.any():
        chosen[seen] = scheduler.assign(np.where(allowed, known, np.inf)[seen], 1)
    return chosen
