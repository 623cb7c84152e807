"""M²FDP (J Alg. 1): noise where a model first leaves trusted ground."""

from m2fdp.algorithms.base import Algorithm, Plan
from m2fdp.schedule.schedule import Schedule
from m2fdp.topology.network import Network, noise_plan
from m2fdp.topology.tree import Tree
from m2fdp.topology.trust import Trust


def _plan(tree: Tree, trust: Trust, schedule: Schedule) -> Plan:
    return Plan(Network(tree, trust, noise_plan(tree, trust)), schedule, private=True)


M2FDP = Algorithm("m2fdp", "M²FDP", "method", _plan)
