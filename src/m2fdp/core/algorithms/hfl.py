"""HFL (J [54]): hierarchical FedAvg without privacy, the upper reference."""

from m2fdp.core.algorithms import Algorithm, Given, Plan
from m2fdp.core.topology.network import Network, no_noise


def _plan(given: Given) -> Plan:
    network = Network(given.tree, given.trust, no_noise(given.tree))
    return Plan(network, given.schedule, private=False)


HFL = Algorithm("hfl", "HFL (no DP)", "baseline", _plan)
