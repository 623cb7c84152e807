"""Who of a zone's devices is its super-node in a round (H Sec. IV-A)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from m2fdp.core.engine.sampling import draw_participants
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import Streams
from m2fdp.core.topology.network import Network
from m2fdp.secure_aggregation.survivors import stays
from m2fdp.zones.lots import NobodyElected, elect
from m2fdp.zones.offices import Offices


def draw_super_nodes(
    network: Network, present: np.ndarray, streams: Streams, round_: int, last_step: int = 1
) -> np.ndarray:
    """Each zone's super-node, uniform over its devices that take part: int64 (N_{L-1},), devices
    by index; -1 where there are none.

    A device that falls silent in the sum that ends the round can't serve: the others draw anew.

    Args:
        present: bool (N_L,), the devices that take part.
        last_step: number of the round's last step, which ends in the global aggregation.
    """
    tree = network.tree
    silent = np.zeros(tree.n_devices, dtype=bool)
    if tree.depth in network.sums.layers:
        silent = ~stays(network, streams, tree.depth, (round_, last_step))
    zones = tree.parents[-1]
    result = np.full(tree.n_nodes(tree.depth - 1), -1)
    for zone in range(len(result)):
        candidates = np.flatnonzero((zones == zone) & present).tolist()
        nonces = streams.generator("election", round_, zone).bytes
        falling = {device for device in candidates if silent[device]}
        try:
            result[zone] = elect(candidates, nonces, falling).leader
        except NobodyElected:
            continue
    return result


def draw_offices(
    network: Network, streams: Streams, plans: Sequence[RoundPlan], coalition: int
) -> Offices:
    """Who serves in every round t = 1…T.

    Args:
        coalition: how many devices tell one another what they see when they serve.
    """
    present, leaders = [], []
    for round_, plan in enumerate(plans, start=1):
        present.append(draw_participants(network, streams, round_))
        last_step = len(plan.layers)
        leaders.append(draw_super_nodes(network, present[-1], streams, round_, last_step))
    return Offices(network.tree.parents[-1], np.stack(present), np.stack(leaders), coalition)
