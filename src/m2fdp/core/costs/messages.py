"""How many bits every node sends up: M parameters of Q bits, and what rooms' messages have.

Only uplinks count: what servers send down costs nothing.
"""

from __future__ import annotations

import numpy as np

from m2fdp.core.config import ResourcesConfig
from m2fdp.core.rooms import brought
from m2fdp.core.topology.network import Network

# For layer l = 1…L (index l-1), float64 (N_l,).
Bits = tuple[np.ndarray, ...]


def message_bits(network: Network, n_parameters: int, config: ResourcesConfig) -> Bits:
    """Of every node's message, with what it hands on of others'."""
    tree, plain = network.tree, float(n_parameters * config.bits_per_parameter)
    bits = tuple(np.full(tree.n_nodes(layer), plain) for layer in range(1, tree.depth + 1))
    for with_more in brought("sent"):
        bits = with_more(network, n_parameters, bits)
    return bits
