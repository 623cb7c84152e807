"""Who is left in a sum that is read: members fall silent, and groups that lose too many are lost.

Everybody shares keys first, so a member that falls silent afterwards is missed by nobody's masks;
what it would have added counts as zero, and all denominators stay what they are.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from m2fdp.core.engine.minibatches import draw_participants
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import Streams
from m2fdp.core.topology.network import Network, readers


def step_in_sums(network: Network, mechanism: Protection) -> bool:
    """Whether groups below a reader of sums move in lock step."""
    drawn, nodes = mechanism.noise.heads, mechanism.lock_step.nodes
    in_lock_step = (drawn[layer][index] == 0 for layer, index in nodes)
    return network.sums.shared and any(of_layer.any() for of_layer in drawn) and any(in_lock_step)


def stays(network: Network, streams: Streams, layer: int, at: tuple[int, int]) -> np.ndarray:
    """Which nodes of a layer of sums do not fall silent after a round's step: bool (N_layer,)."""
    n_nodes = network.tree.n_nodes(layer)
    if not network.sums.dropout:
        return np.ones(n_nodes, dtype=bool)
    return streams.generator("dropout", *at, layer).random(n_nodes) >= network.sums.dropout


def draw_survivors(
    network: Network, present: np.ndarray, streams: Streams, at: tuple[int, int]
) -> dict[int, np.ndarray]:
    """Whose messages are in the sums after a local step: by layer l of sums, bool (N_l,).

    All of a group that is below its threshold are left out, or the run is to stop then
    (`LostSumError`).

    Args:
        present: bool (N_L,), the devices that take part in the round.
        at: round and step.
    """
    sums, tree = network.sums, network.tree
    alive: dict[int, np.ndarray] = {}
    for layer in sorted(sums.layers):
        members = present if layer == tree.depth else np.ones(tree.n_nodes(layer), dtype=bool)
        of_node = readers(tree, sums, layer)
        thresholds = sums.least_members(np.bincount(of_node, weights=members).astype(np.int64))
        members = members & stays(network, streams, layer, at)
        remaining = np.bincount(of_node, weights=members).astype(np.int64)
        lost = np.flatnonzero(remaining < thresholds)
        alive[layer] = members & ~np.isin(of_node, lost)
    return alive


def count_lost(
    network: Network, plans: Sequence[RoundPlan], streams: Streams, every_step: bool
) -> tuple[int, int]:
    """How many sums of the rounds t = 1…T are lost, and how many there are, as the draws will have
    it, if every local step ends in sums, or else those that models travel past."""
    lost, total = 0, 0
    for number, plan in enumerate(plans, start=1):
        present = draw_participants(network, streams, number)
        for step, top in enumerate(plan.layers, start=1):
            alive = draw_survivors(network, present, streams, (number, step))
            for layer, members in alive.items():
                if every_step or (top is not None and top < layer):
                    of_node = readers(network.tree, network.sums, layer)
                    remaining = np.bincount(of_node, weights=members)
                    lost += int((remaining == 0).sum())
                    total += len(remaining)
    return lost, total


def devices_in(network: Network, alive: Mapping[int, np.ndarray]) -> np.ndarray:
    """The devices all of whose sums are read with what they sent: bool (N_L,)."""
    result = np.ones(network.tree.n_devices, dtype=bool)
    for layer, members in alive.items():
        result &= members[network.tree.ancestors[layer]]
    return result
