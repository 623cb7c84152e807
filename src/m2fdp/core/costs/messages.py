"""How many bits every node sends up, with secure aggregation and without; and elections' bits.

A message of M parameters has M·Q bits. One that is read in a sum only is a masked vector of M words
of 32 bits, whatever Q is, and comes with what hides and unmasks it: public keys, sealed shares for
every other member, and shares for the sum that is read (Bonawitz et al. 2017). All of it is sent
anew for every sum, here by members who all come to the end. Where the cloud reads the sum, servers
between send one vector, which they have added up, and hand on all else that members below send.
`protocol: ideal` has the messages of `masks`.

Only uplinks count: lists of keys and others' shares, which servers send down, cost nothing.
"""

from __future__ import annotations

import numpy as np

from m2fdp.core.config import ResourcesConfig
from m2fdp.core.topology.network import Network
from m2fdp.secure_aggregation.elections import NONCE_BYTES
from m2fdp.secure_aggregation.traffic import member_bytes, overhead_bits

# For layer l = 1…L (index l-1), float64 (N_l,).
Bits = tuple[np.ndarray, ...]


def message_bits(network: Network, n_parameters: int, config: ResourcesConfig) -> Bits:
    """Of every node's message, with what it hands on of others'.

    Where devices join by chance, of the expected number of others.
    """
    tree, sums = network.tree, network.sums
    plain = float(n_parameters * config.bits_per_parameter)
    bits = tuple(np.full(tree.n_nodes(layer), plain) for layer in range(1, tree.depth + 1))
    vector = 8 * member_bytes(2, n_parameters).vector
    of_one = overhead_bits(1)
    each_other = overhead_bits(2) - of_one
    for layer in sums.layers:
        lowest = layer == tree.depth
        others = (network.group_sizes(layer) - 1) * (_chance(network) if lowest else 1.0)
        overhead = of_one + each_other * others
        bits[layer - 1][:] = vector + overhead
        sent = overhead * (network.odds if lowest else 1.0)
        for relay in range(layer - 1, sums.reader_layer(layer), -1):
            handed_on = np.bincount(tree.ancestors_of(layer, relay), weights=sent)
            bits[relay - 1][:] = vector + handed_on
    return bits


def ballot_bits(network: Network) -> np.ndarray:
    """What each device that takes part sends to elect its zone's super-node: float64 (N_L,).

    A commitment and a nonce to each of the others, in an election that nobody leaves; 2 k (k-1)
    messages of k devices (H Sec. IV-A).
    """
    others = (network.present - 1)[network.tree.parents[-1]] * _chance(network)
    return 2.0 * 8 * NONCE_BYTES * others


def _chance(network: Network) -> float:
    """With which each of the others of a device that takes part does, too."""
    return 1.0 if network.chance is None else network.chance
