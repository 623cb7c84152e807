"""HDP, mixed (H Sec. V, C3 and C5 to C7): zones differ in who adds noise; see `zones`.

Whom a device trusts follows from who adds noise: the devices of a zone whose devices all do trust
nobody; others trust their super-node, and those whose super-node adds none, the cloud.
"""

import numpy as np

from m2fdp.core.algorithms.base import Given, Plan
from m2fdp.core.errors import BLOCK, InputError
from m2fdp.core.privacy.sight import BEYOND_THE_CLOUD
from m2fdp.core.topology.network import Network
from m2fdp.zones.algorithm import ZoneAlgorithm
from m2fdp.zones.placement import draw_adders


def _plan(given: Given) -> Plan:
    tree, zones = given.tree, given.config.zones
    if tree.depth != 2:
        raise InputError(
            "algorithm",
            "hdp_mixed",
            f"needs a tree of two tiers, zones below the cloud, not of {tree.depth}",
        )
    devices, servers = draw_adders(tree, zones, given.seed)
    all_do = np.bincount(tree.parents[1], weights=~devices) == 0
    exposed = np.flatnonzero(~all_do & ~servers)
    if exposed.size and not zones.cloud_noise:
        raise InputError(
            "zones",
            BLOCK,
            f"leaves {exposed.size} zones, such as {tree.names[1][exposed[0]]}, with devices that "
            "nobody adds noise for; raise device_noise or server_noise, or set cloud_noise: true",
        )
    cloud = np.array([zones.cloud_noise])
    noise = tuple(adds.astype(np.float64) for adds in (cloud, servers, devices))
    return Plan(
        Network(tree, (cloud, ~all_do), noise),
        given.schedule,
        private=True,
        distrusts=BEYOND_THE_CLOUD if zones.cloud_noise else frozenset(),
    )


HDP_MIXED = ZoneAlgorithm("hdp_mixed", "HDP, mixed", "method", _plan, zoned=True)
