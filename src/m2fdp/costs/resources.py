"""Energy and delay of a round (J Sec. V-B, VI-A).

A message's delay is its bits over the rate of its link and its energy power times delay. Only
uplinks count. Links into the cloud are wired, all others wireless. How many bits a message has
stands in `m2fdp.costs.messages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from m2fdp.config import ResourcesConfig
from m2fdp.costs.clock import Cost
from m2fdp.costs.messages import Bits, ballot_bits, message_bits
from m2fdp.privacy.mechanisms import LockStep
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.sampling import sibling_rank
from m2fdp.topology.network import Network
from m2fdp.topology.tree import Tree


def watts(dbm: float) -> float:
    """Power in watts from dBm: 30 dBm are 1 W."""
    return 10 ** ((dbm - 30) / 10)


def message_cost(layer: int, n_parameters: int, config: ResourcesConfig) -> Cost:
    """Cost of one model or gradient sent by a node of layer l = 1…L to its parent."""
    return link_cost(layer, n_parameters * config.bits_per_parameter, config)


def link_cost(layer: int, bits: float, config: ResourcesConfig) -> Cost:
    """Cost of so many bits sent by a node of layer l = 1…L to its parent."""
    wired = layer == 1
    power_dbm = config.wired_power_dbm if wired else config.wireless_power_dbm
    rate_mbps = config.wired_rate_mbps if wired else config.wireless_rate_mbps
    delay = bits / (rate_mbps * 1e6)
    return Cost(watts(power_dbm) * delay, delay)


class LinkClock:
    """The clock of J: local steps, and messages over wireless and wired links (a `Clock`).

    Args:
        networks: of the run; a round's plan names its own.
        lock_steps: of each of them.
        n_parameters: M.
        reports: vectors that learners send up beside a model at a round's end.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        lock_steps: Sequence[LockStep],
        n_parameters: int,
        config: ResourcesConfig,
        reports: int = 0,
    ) -> None:
        def cost(network: int, layers: tuple[int | None, ...]) -> Cost:
            whole = networks[network], lock_steps[network]
            return round_cost(*whole, layers, n_parameters, config, reports)

        def above(network: int, layers: tuple[int | None, ...]) -> Cost:
            whole = networks[network], lock_steps[network]
            return servers_cost(*whole, layers, n_parameters, config)

        self._cost, self._above = cache(cost), cache(above)

    def round(self, plan: RoundPlan) -> Cost:
        """See `round_cost`."""
        return self._cost(plan.network, plan.layers)

    def servers(self, plan: RoundPlan) -> Cost:
        """See `servers_cost`."""
        return self._above(plan.network, plan.layers)


def round_cost(
    network: Network,
    lock_step: LockStep,
    layers: tuple[int | None, ...],
    n_parameters: int,
    config: ResourcesConfig,
    reports: int = 0,
) -> Cost:
    """Cost of one round: elections, local steps, lock-step gradients, local, global aggregations.

    In a lock-step group every device's gradient travels to the group's head at every local
    step; the head has the group's model already, so an aggregation starts there. A step ends
    when its slowest group has. Where devices join by chance these are the costs of the expected
    numbers: for energy its expectation, for delay a little less.

    Args:
        layers: of a `RoundPlan`: the layer up to which models travel after each local step.
        reports: vectors that learners send up beside a model at a round's end.
    """
    tree = network.tree
    present = _present(network)
    energy = len(layers) * present.sum() * config.step_energy_j
    delay = len(layers) * config.step_delay_s
    if network.elected:
        election = _hop_cost(tree, tree.depth, present, ballot_bits(network), config)
        energy += election.energy_j
        delay += float(election.delay_s.max())
    bits = message_bits(network, n_parameters, config)
    longer = message_bits(network, n_parameters * (1 + reports), config)
    # What is sent inside a lock-step group is a gradient, whatever its head reports.
    inside = _inside_groups(tree, lock_step)
    last = tuple(np.where(*each) for each in zip(inside, bits, longer, strict=True))
    for top, sending in zip(layers, _senders(tree, lock_step, layers, present), strict=True):
        cost = _journey_cost(tree, sending, last if top == 0 else bits, config)
        energy += cost.energy_j
        delay += cost.delay_s
    return Cost(energy, delay)


def servers_cost(
    network: Network,
    lock_step: LockStep,
    layers: tuple[int | None, ...],
    n_parameters: int,
    config: ResourcesConfig,
) -> Cost:
    """Of `round_cost` what servers send: their own messages up, without devices' and their steps.

    Args:
        layers: of a `RoundPlan`.
    """
    tree = network.tree
    bits = message_bits(network, n_parameters, config)
    energy, delay = 0.0, 0.0
    for sending in _senders(tree, lock_step, layers, np.zeros(tree.n_devices)):
        cost = _journey_cost(tree, sending, bits, config)
        energy += cost.energy_j
        delay += cost.delay_s
    return Cost(energy, delay)


def _senders(
    tree: Tree, lock_step: LockStep, layers: tuple[int | None, ...], present: np.ndarray
) -> Iterator[tuple[np.ndarray, ...]]:
    """For each local step, for layer l = 1…L, (N_l,): which nodes send a message up then.

    Args:
        layers: of a `RoundPlan`.
        present: (N_L,), which devices send any, or how often each does.
    """
    inside = _inside_groups(tree, lock_step)
    for top in layers:
        above = [
            mask | (top is not None and layer > top) for layer, mask in enumerate(inside, start=1)
        ]
        yield (*above[:-1], above[-1] * present)


def _present(network: Network) -> np.ndarray:
    """Who takes part, or how often each does: (N_L,)."""
    tree = network.tree
    if network.chance is not None:
        return network.odds
    # Which devices take part changes, how many does not: let it be the first ones.
    rank = sibling_rank(tree, np.arange(tree.n_devices))
    return rank < network.present[tree.parents[-1]]


@dataclass(frozen=True, eq=False)
class CostGrid:
    """Cost of one round for every K, s_T and s_U: joules and seconds, float64 (k, a, b) each."""

    energy_j: np.ndarray
    delay_s: np.ndarray


def round_costs(
    network: Network,
    lock_step: LockStep,
    aggregate_every: int | None,
    n_parameters: int,
    config: ResourcesConfig,
    local_steps: np.ndarray,
    sizes: tuple[np.ndarray, np.ndarray],
) -> CostGrid:
    """`round_cost` as a function of K and participation (E and Gamma of J Sec. V-B for one round).

    Local aggregations are at layer 1 only. J sums the delays of the local aggregations of all
    servers; here, as in `round_cost`, different servers receive side by side.

    Args:
        network: of depth L >= 2; its own participation plays no part.
        aggregate_every: local steps between local aggregations; None = there are none.
        local_steps: int (k,), the values of K.
        sizes: int (a,) and (b,), the values of s_T and s_U: how many devices take part, at most,
            below a lowest server whose ancestor at layer 1 is trusted, and is not.
    """
    tree = network.tree
    below_trusted = network.trust[1][tree.ancestors[1]]
    inside = _inside_groups(tree, lock_step)
    journeys = (  # a step by itself, a step that ends at layer 1, and the last one
        inside,
        tuple(mask | (layer > 1) for layer, mask in enumerate(inside, start=1)),
        tuple(np.ones_like(mask) for mask in inside),
    )
    trusted, untrusted = (
        _branch_costs(network, branch, values, journeys, n_parameters, config)
        for branch, values in zip((below_trusted, ~below_trusted), sizes, strict=True)
    )
    # Axes: journey, K, s_T, s_U.
    energy = trusted.energy_j[:, None, :, None] + untrusted.energy_j[:, None, None, :]
    delay = np.maximum(trusted.delay_s[:, None, :, None], untrusted.delay_s[:, None, None, :])
    last = trusted.last_s[:, None, :, None], untrusted.last_s[:, None, None, :]
    delay = delay + (last[0] + last[1] if config.uplinks == "sequential" else np.maximum(*last))

    steps = np.asarray(local_steps)[:, None, None]
    locally = np.zeros_like(steps) if aggregate_every is None else (steps - 1) // aggregate_every
    times = np.stack([steps - 1 - locally, locally, np.ones_like(steps)])
    present = trusted.present[:, None] + untrusted.present[None, :]
    return CostGrid(
        (times * energy).sum(axis=0) + steps * present * config.step_energy_j,
        (times * delay).sum(axis=0) + steps * config.step_delay_s,
    )


@dataclass(frozen=True, eq=False)
class _BranchCosts:
    """Costs of journeys, (journeys, sizes), and devices (sizes,).

    Attributes:
        energy_j: of all messages.
        delay_s: of those up to layer 1.
        last_s: of those into the cloud.
        present: how many devices take part.
    """

    energy_j: np.ndarray
    delay_s: np.ndarray
    last_s: np.ndarray
    present: np.ndarray


def _branch_costs(
    network: Network,
    branch: np.ndarray,
    sizes: np.ndarray,
    journeys: tuple[tuple[np.ndarray, ...], ...],
    n_parameters: int,
    config: ResourcesConfig,
) -> _BranchCosts:
    """Costs of the devices in `branch`, bool (N_L,), and of the servers above; no others send."""
    tree = network.tree
    rank = sibling_rank(tree, np.arange(tree.n_devices))
    members = []
    for layer in range(1, tree.depth + 1):
        member = np.zeros(tree.n_nodes(layer), dtype=bool)
        member[tree.ancestors[layer][branch]] = True
        members.append(member)
    energy, delay, last = np.zeros((3, len(journeys), len(sizes)))
    present = np.zeros(len(sizes), dtype=np.int64)
    for i, size in enumerate(sizes):
        taking_part = (*members[:-1], members[-1] & (rank < size))
        present[i] = taking_part[-1].sum()
        bits = message_bits(replace(network, participants=max(int(size), 1)), n_parameters, config)
        for journey, masks in enumerate(journeys):
            sending = [mask & own for mask, own in zip(masks, taking_part, strict=True)]
            into_cloud = _hop_cost(tree, 1, sending[0], bits[0], config)
            sending[0] = np.zeros_like(sending[0])
            cost = _journey_cost(tree, tuple(sending), bits, config)
            energy[journey, i] = cost.energy_j + into_cloud.energy_j
            delay[journey, i], last[journey, i] = cost.delay_s, into_cloud.delay_s[0]
    return _BranchCosts(energy, delay, last, present)


def _inside_groups(tree: Tree, lock_step: LockStep) -> tuple[np.ndarray, ...]:
    """For layer l = 1…L, bool (N_l,): is the node below the head of a lock-step group."""
    head_layer = lock_step.nodes[lock_step.group_of, 0]
    inside = []
    for layer in range(1, tree.depth + 1):
        mask = np.zeros(tree.n_nodes(layer), dtype=bool)
        mask[tree.ancestors[layer][head_layer < layer]] = True
        inside.append(mask)
    return tuple(inside)


def _journey_cost(
    tree: Tree, sending: tuple[np.ndarray, ...], bits: Bits, config: ResourcesConfig
) -> Cost:
    """The messages of the sending nodes of layer l = 1…L, from the devices up; `sending` is
    whether each does, or how often.

    A parent sends on when the last of its children has arrived; siblings transmit in turn or
    at once, and different parents receive side by side.
    """
    energy, delay = 0.0, 0.0
    ready = np.zeros(tree.n_devices)
    for layer in range(tree.depth, 0, -1):
        senders = np.flatnonzero(sending[layer - 1])
        parents = tree.parents[layer - 1][senders]
        hop = _hop_cost(tree, layer, sending[layer - 1], bits[layer - 1], config)
        energy += hop.energy_j
        arrived = np.zeros(tree.n_nodes(layer - 1))
        np.maximum.at(arrived, parents, ready[senders])
        ready = arrived + hop.delay_s
        delay = max(delay, float(ready.max()))
    return Cost(float(energy), delay)


@dataclass(frozen=True, eq=False)
class _HopCost:
    """What a layer sends to the next: joules of all, and of each parent the seconds until the last
    of its children's messages is there, float64 (N_{l-1},)."""

    energy_j: float
    delay_s: np.ndarray


def _hop_cost(
    tree: Tree, layer: int, sending: np.ndarray, bits: np.ndarray, config: ResourcesConfig
) -> _HopCost:
    """The messages of the nodes of a layer, of so many bits (N_l,) each; `sending` (N_l,) is
    whether each sends one, or how often."""
    senders = np.flatnonzero(sending)
    parents, n_parents = tree.parents[layer - 1][senders], tree.n_nodes(layer - 1)
    in_turn = config.uplinks == "sequential"
    sizes, which = np.unique(bits[senders], return_inverse=True)
    costs = [link_cost(layer, float(size), config) for size in sizes]
    energy = 0.0
    delays = np.zeros(n_parents)
    for kind, cost in enumerate(costs):
        alike = which == kind
        counts = sending[senders[alike]].astype(np.float64)
        messages = np.bincount(parents[alike], weights=counts, minlength=n_parents)
        energy += cost.energy_j * counts.sum()
        if in_turn:
            delays += messages * cost.delay_s
        else:
            delays = np.maximum(delays, np.minimum(messages, 1) * cost.delay_s)
    return _HopCost(energy, delays)
