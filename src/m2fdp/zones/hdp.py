"""HDP (H Sec. V, C2): every zone trusts its super-node, its lowest server, which adds the noise.

Servers between the super-nodes and the cloud, of which H has none, are trusted and add none.
"""

import numpy as np

from m2fdp.core.algorithms.base import Given, Plan
from m2fdp.core.errors import InputError
from m2fdp.core.topology.network import Network, no_noise
from m2fdp.core.topology.trust import all_but_the_cloud
from m2fdp.zones.algorithm import ZoneAlgorithm


def _plan(given: Given) -> Plan:
    tree = given.tree
    if tree.depth < 2:
        raise InputError(
            "algorithm", "hdp", "needs servers between cloud and devices, H's super-nodes"
        )
    noise = list(no_noise(tree))
    noise[tree.depth - 1] = np.ones(tree.n_nodes(tree.depth - 1))
    network = Network(tree, all_but_the_cloud(tree), tuple(noise))
    return Plan(network, given.schedule, private=True)


HDP = ZoneAlgorithm("hdp", "HDP", "method", _plan)
