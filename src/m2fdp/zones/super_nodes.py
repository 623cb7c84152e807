"""Super-nodes that a zone elects from its own devices (H Sec. IV-A).

A zone is a lowest server with its devices. Where super-nodes are elected, one of the devices that
take part is the server for a round. So the zone trusts its own devices with its messages
(H Sec. III-A), each of them in turn.
"""

from dataclasses import replace

import numpy as np

from m2fdp.core.algorithms.base import Plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.topology.network import Network, heads_of


def with_elections(plan: Plan, config: Config) -> Plan:
    """The plan with the lowest servers elected, if they are; an `InputError` where there are none,
    or more of a zone's devices collude than its elections stand."""
    network, elections = plan.network, config.topology.super_nodes
    if elections.kind == "fixed":
        return plan
    if network.tree.depth < 2:
        problem = "needs servers between cloud and devices, which this network, a star, has not"
        raise InputError("topology.super_nodes.kind", elections.kind, f"{problem}; use fixed")
    chance, colluding = 1.0 if network.chance is None else network.chance, config.threat.colluding
    on_line = network.present * chance  # those expected
    too_many = colluding > (on_line - 1) / 3  # H Sec. IV-A
    if too_many.any():
        zone = int(np.argmax(too_many))
        raise InputError(
            "threat.colluding",
            colluding,
            f"is too many of the m = {on_line[zone]:g} devices on line in zone "
            f"{network.tree.names[-2][zone]} for its elections; valid: at most (m - 1)/3",
        )
    return replace(plan, network=replace(network, elected=True))


def zone_read_in_clear(network: Network) -> str | None:
    """The name of a zone whose elected super-nodes read something of its devices without noise;
    None where there is none, or nobody is elected."""
    if not network.elected:
        return None
    tree = network.tree
    layers, _ = heads_of(network).T
    in_clear = layers < tree.depth
    if tree.depth in network.sums.layers and network.sums.decode == "cloud":
        in_clear &= layers > 0  # who adds no noise of its own gets words only
    exposed = np.flatnonzero(in_clear)
    return tree.names[-2][tree.parents[-1][exposed[0]]] if exposed.size else None
