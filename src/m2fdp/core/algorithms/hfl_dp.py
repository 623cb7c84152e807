"""HFL-DP (J [16]): the same tree with no server trusted, so every device adds noise."""

from m2fdp.core.algorithms import Algorithm, Given, Plan
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_untrusted


def _plan(given: Given) -> Plan:
    nobody = all_untrusted(given.tree)
    network = Network(given.tree, nobody, noise_plan(given.tree, nobody))
    return Plan(network, given.schedule, private=True)


HFL_DP = Algorithm("hfl_dp", "HFL-DP", "baseline", _plan)
