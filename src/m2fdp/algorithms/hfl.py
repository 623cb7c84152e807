"""HFL (J [54]): hierarchical FedAvg without privacy, the upper reference."""

from m2fdp.algorithms.base import Algorithm, Plan
from m2fdp.schedule.schedule import Schedule
from m2fdp.topology.network import Network, no_noise
from m2fdp.topology.tree import Tree
from m2fdp.topology.trust import Trust


def _plan(tree: Tree, trust: Trust, schedule: Schedule) -> Plan:
    return Plan(Network(tree, trust, no_noise(tree)), schedule, private=False)


HFL = Algorithm("hfl", "HFL (no DP)", "baseline", _plan)
