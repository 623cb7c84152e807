"""PEDPFL (J [14] as J runs it): the same devices in a star below an untrusted cloud."""

from dataclasses import replace

from m2fdp.core.algorithms import Algorithm, Given, Plan
from m2fdp.core.topology.builders import star
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_untrusted


def _plan(given: Given) -> Plan:
    flat = star(given.tree)
    nobody = all_untrusted(flat)
    network = Network(flat, nobody, noise_plan(flat, nobody))
    # A star has no servers between, so there is nothing to aggregate locally.
    return Plan(network, replace(given.schedule, local_aggregation={}), private=True)


PEDPFL = Algorithm("pedpfl", "PEDPFL", "baseline", _plan)
