"""M²FDP whose devices split their model with a server that the tree trusts (`tiering.offload_to`).

Activations, labels and gradients then stay on trusted ground, and noise is where M²FDP has it: the
ledger is M²FDP's. `offload_to: anyone` lets the others split too, who noise what they send.
"""

import numpy as np

from m2fdp.core.algorithms.base import Algorithm, Given, Plan
from m2fdp.core.topology.network import Network, noise_plan


def _plan(given: Given) -> Plan:
    tree, trust = given.tree, given.trust
    splits = trust[-1][tree.parents[-1]].copy()
    if given.config.tiering.offload_to == "anyone":
        splits = np.ones_like(splits)
    network = Network(tree, trust, noise_plan(tree, trust), splits=splits)
    return Plan(network, given.schedule, private=True)


M2FDP_TIERS = Algorithm("m2fdp_tiers", "M²FDP in tiers", "method", _plan)
