"""What members send in one round, in bits, where all come to the end.

A message that is read in a sum only is a masked vector of M words of 32 bits, whatever a parameter
has. It comes with what hides and unmasks it: public keys, sealed shares for every other member, and
shares for the sum that is read (Bonawitz et al. 2017). All of it is sent anew for every sum. Where
the cloud reads the sum, servers between send one vector, which they have added up, and hand on all
else that members below send. `protocol: ideal` has the messages of `masks`.

Each member's number in a message takes 4 bytes; the transport's own headers do not count.
"""

import numpy as np

from m2fdp.core.topology.network import Network
from m2fdp.secure_aggregation.shares import SHARE_BYTES

_ID, _WORD, _PUBLIC_KEYS = 4, 4, 2 * 32
# Two shares and the tag of their seal.
_PARCEL = _ID + 2 * SHARE_BYTES + 16


def overhead_bits(n_members: float) -> float:
    """What each of so many members sends besides its masked vector."""
    return 8 * (_PUBLIC_KEYS + (n_members - 1) * _PARCEL + n_members * (_ID + SHARE_BYTES))


def with_overhead(
    network: Network, n_parameters: int, bits: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, ...]:
    """The bits of every node's message, layer l = 1…L, where some are read in sums only.

    Where devices join by chance, of the expected number of others.
    """
    tree, sums, bits = network.tree, network.sums, tuple(map(np.copy, bits))
    vector, of_one = 8 * _WORD * n_parameters, overhead_bits(1)
    each_other = overhead_bits(2) - of_one
    for layer in sums.layers:
        by_chance = layer == tree.depth and network.chance is not None
        others = (network.group_sizes(layer) - 1) * (network.chance if by_chance else 1.0)
        overhead = of_one + each_other * others
        bits[layer - 1][:] = vector + overhead
        sent = overhead * (network.odds if layer == tree.depth else 1.0)
        for relay in range(layer - 1, sums.reader_layer(layer), -1):
            handed_on = np.bincount(tree.ancestors_of(layer, relay), weights=sent)
            bits[relay - 1][:] = vector + handed_on
    return bits
