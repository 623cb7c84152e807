"""M²FDP (J Alg. 1): noise where a model first leaves trusted servers."""

from m2fdp.core.algorithms import Algorithm, Given, Plan
from m2fdp.core.topology.network import Network, noise_plan


def _plan(given: Given) -> Plan:
    network = Network(given.tree, given.trust, noise_plan(given.tree, given.trust))
    return Plan(network, given.schedule, private=True)


M2FDP = Algorithm("m2fdp", "M²FDP", "method", _plan, controllable=True)
