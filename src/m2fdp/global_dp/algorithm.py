"""Global DP (Long et al.): models are clipped, and noised on the way up and on the way down.

Devices noise their messages, edge servers theirs and what they broadcast, the cloud what it
broadcasts. Where an edge server is trusted, its devices add nothing: the server does.
"""

import numpy as np

from m2fdp.core.algorithms import Algorithm, Given, Plan
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.topology.network import Network, noise_plan


def _plan(given: Given) -> Plan:
    *_, devices = noise_plan(given.tree, given.trust)
    servers = [np.ones(given.tree.n_nodes(layer)) for layer in range(given.tree.depth)]
    network = Network(given.tree, given.trust, (*servers, devices))
    return Plan(network, given.schedule, private=True)


GLOBAL_DP = Algorithm(
    "global_dp", "Global DP (G)", "method", _plan, mechanisms=frozenset({"weights"})
)


def drowned(assembly: Assembly) -> list[str]:
    """A line where the noise of a message is longer than a clipped model."""
    mechanism = assembly.calibration.mechanism
    norm = mechanism.clipping.model_norm
    if norm is None:
        return []
    of_message = max(float(of_layer.max()) for of_layer in mechanism.noise.messages)
    length = of_message * assembly.model.n_parameters**0.5
    if length <= norm:
        return []
    return [
        f"the noise of one message is {length:.3g} long, and no clipped model is longer than "
        f"{norm:g} (privacy.clipping_norm): what is trained may be noise alone"
    ]
