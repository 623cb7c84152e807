"""Algorithms, one small file each: how it sets tree, trust, noise and schedule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from m2fdp.algorithms.base import Algorithm, Plan
from m2fdp.algorithms.hfl import HFL
from m2fdp.algorithms.hfl_dp import HFL_DP
from m2fdp.algorithms.m2fdp import M2FDP
from m2fdp.algorithms.pedpfl import PEDPFL
from m2fdp.config import TopologyConfig, TrainingConfig
from m2fdp.errors import InputError
from m2fdp.schedule.schedule import build_schedule
from m2fdp.topology.builders import build_tree
from m2fdp.topology.network import Network, exposed_devices
from m2fdp.topology.trust import build_trust

# In the order in which tables and figures list them.
ALGORITHMS = {algorithm.name: algorithm for algorithm in (HFL, PEDPFL, HFL_DP, M2FDP)}

__all__ = ["ALGORITHMS", "Algorithm", "Plan", "build_plan", "get_algorithm"]


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of that name.

    Raises:
        InputError: there is none.
    """
    if name not in ALGORITHMS:
        raise InputError("algorithm", name, f"is unknown; valid are {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def build_plan(
    algorithm: str, topology: TopologyConfig, training: TrainingConfig, seed: int
) -> Plan:
    """The algorithm's plan on the configured tree, trust and schedule.

    Raises:
        InputError: the blocks contradict one another, or the algorithm's noise leaves a device
            in clear.
    """
    tree = build_tree(topology)
    trust = build_trust(tree, topology.trust, seed)
    schedule = build_schedule(training, tree.depth)
    plan = get_algorithm(algorithm).plan(tree, trust, schedule)
    if plan.private:
        _check_noise(algorithm, plan.network)
    if training.participants is None:
        return plan
    participants = training.participants
    most = int(tree.n_children(tree.depth - 1).max())
    if participants > most:
        raise InputError(
            "training.participants",
            participants,
            f"is more than the devices of any lowest server, at most {most}; null means all",
        )
    if plan.network.tree.depth != tree.depth:  # a star: as many devices in all
        participants = int(Network(tree, trust, (), participants).present.sum())
    return replace(plan, network=replace(plan.network, participants=participants))


def _check_noise(algorithm: str, network: Network) -> None:
    """Every device is behind noise before an untrusted server sees anything of it."""
    if network.trust[0].any():
        raise InputError(
            "algorithm", algorithm, "trusts the cloud, which the privacy ledger takes as untrusted"
        )
    exposed = np.flatnonzero(exposed_devices(network))
    if exposed.size:
        raise InputError(
            "algorithm",
            algorithm,
            f"is private, but {exposed.size} devices, such as "
            f"{network.tree.names[-1][exposed[0]]}, reach an untrusted server without noise; "
            "noise_plan(tree, trust) places it where it belongs",
        )
