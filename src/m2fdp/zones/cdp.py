"""CDP (H Sec. V, C4): all servers and the cloud are trusted; the cloud alone adds noise.

With nobody else left to protect from, the promise binds those who receive the global model.
"""

from m2fdp.core.algorithms.base import Given, Plan
from m2fdp.core.privacy.sight import BEYOND_THE_CLOUD
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_trusted
from m2fdp.zones.algorithm import ZoneAlgorithm


def _plan(given: Given) -> Plan:
    everybody = all_trusted(given.tree)
    network = Network(given.tree, everybody, noise_plan(given.tree, everybody))
    return Plan(network, given.schedule, private=True, distrusts=BEYOND_THE_CLOUD)


CDP = ZoneAlgorithm("cdp", "CDP", "baseline", _plan)
