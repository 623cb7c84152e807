"""Energy and delay of a round (J Sec. V-B, VI-A).

A message of M parameters has M·Q bits; its delay is bits over rate and its energy power times
delay. Only uplinks count. Links into the cloud are wired, all others wireless.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from m2fdp.config import ResourcesConfig
from m2fdp.privacy.mechanisms import LockStep
from m2fdp.simulation.sampling import sibling_rank
from m2fdp.simulation.schedule import Schedule
from m2fdp.topology.network import Network
from m2fdp.topology.tree import Tree


@dataclass(frozen=True)
class Cost:
    """Energy in joules and delay in seconds."""

    energy_j: float
    delay_s: float


def watts(dbm: float) -> float:
    """Power in watts from dBm: 30 dBm are 1 W."""
    return 10 ** ((dbm - 30) / 10)


def message_cost(layer: int, n_parameters: int, config: ResourcesConfig) -> Cost:
    """Cost of one model or gradient sent by a node of layer l = 1…L to its parent."""
    wired = layer == 1
    power_dbm = config.wired_power_dbm if wired else config.wireless_power_dbm
    rate_mbps = config.wired_rate_mbps if wired else config.wireless_rate_mbps
    delay = n_parameters * config.bits_per_parameter / (rate_mbps * 1e6)
    return Cost(watts(power_dbm) * delay, delay)


def round_cost(
    network: Network,
    lock_step: LockStep,
    schedule: Schedule,
    n_parameters: int,
    config: ResourcesConfig,
) -> Cost:
    """Cost of one round: local steps, lock-step gradients, local and global aggregations.

    In a lock-step group every device's gradient travels to the group's head at every local
    step; the head has the group's model already, so an aggregation starts there. A step ends
    when its slowest group has.
    """
    tree = network.tree
    inside = _inside_groups(tree, lock_step)
    # Which devices take part changes, how many does not: let it be the first ones.
    rank = sibling_rank(tree, np.arange(tree.n_devices))
    present = rank < network.present[tree.parents[-1]]
    energy = schedule.local_steps * present.sum() * config.step_energy_j
    delay = schedule.local_steps * config.step_delay_s
    for step in range(1, schedule.local_steps + 1):
        top = schedule.aggregation_layer(step)
        sending = tuple(
            mask | (top is not None and layer > top) for layer, mask in enumerate(inside, start=1)
        )
        sending = (*sending[:-1], sending[-1] & present)
        cost = _journey_cost(tree, sending, n_parameters, config)
        energy += cost.energy_j
        delay += cost.delay_s
    return Cost(energy, delay)


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
    tree: Tree, sending: tuple[np.ndarray, ...], n_parameters: int, config: ResourcesConfig
) -> Cost:
    """The messages of the sending nodes of layer l = 1…L, from the devices up.

    A parent sends on when the last of its children has arrived; siblings transmit in turn or
    at once, and different parents receive side by side.
    """
    energy, delay = 0.0, 0.0
    ready = np.zeros(tree.n_devices)
    for layer in range(tree.depth, 0, -1):
        senders = np.flatnonzero(sending[layer - 1])
        parents = tree.parents[layer - 1][senders]
        cost = message_cost(layer, n_parameters, config)
        energy += cost.energy_j * len(senders)
        messages = np.bincount(parents, minlength=tree.n_nodes(layer - 1))
        in_turn = messages if config.uplinks == "sequential" else np.minimum(messages, 1)
        arrived = np.zeros(tree.n_nodes(layer - 1))
        np.maximum.at(arrived, parents, ready[senders])
        ready = arrived + in_turn * cost.delay_s
        delay = max(delay, float(ready.max()))
    return Cost(float(energy), delay)
