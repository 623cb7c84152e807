"""HFL-DP (J [16]): the same tree with no server trusted, so every device adds noise."""

from m2fdp.algorithms.base import Algorithm, Plan
from m2fdp.schedule.schedule import Schedule
from m2fdp.topology.network import Network, noise_plan
from m2fdp.topology.tree import Tree
from m2fdp.topology.trust import Trust, all_untrusted


def _plan(tree: Tree, trust: Trust, schedule: Schedule) -> Plan:
    nobody = all_untrusted(tree)
    return Plan(Network(tree, nobody, noise_plan(tree, nobody)), schedule, private=True)


HFL_DP = Algorithm("hfl_dp", "HFL-DP", "baseline", _plan)
