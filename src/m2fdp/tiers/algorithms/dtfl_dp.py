"""DTFL with a promise (D has none): nobody is trusted, so clients noise activations and gradients.

What a record's two releases of an epoch tell together is one line of the ledger
(`m2fdp.tiers.split_noise`).
"""

from dataclasses import replace

import numpy as np

from m2fdp.core.algorithms.base import Given, Plan
from m2fdp.core.topology.network import noise_plan
from m2fdp.tiers import ways
from m2fdp.tiers.algorithms.in_tiers import star_in_tiers
from m2fdp.tiers.ways import TierAlgorithm


def _plan(given: Given) -> Plan:
    plan = star_in_tiers(given)
    tree, trust = plan.network.tree, plan.network.trust
    everybody = np.ones(tree.n_devices, dtype=bool)
    network = replace(plan.network, noise=noise_plan(tree, trust), splits=everybody)
    # The ledger counts an epoch where others have a local step.
    schedule = replace(plan.schedule, local_steps=given.config.training.local_epochs)
    return replace(plan, network=network, schedule=schedule, private=True)


DTFL_DP = TierAlgorithm("dtfl_dp", "DTFL-DP", "baseline", _plan, tiers=ways.DTFL)
