"""The network as a table."""

import pandas as pd

from m2fdp.core.topology.network import Network


def network_table(network: Network) -> pd.DataFrame:
    """One row a node, from the cloud down: node, layer, parent, kind, trusted, adds_noise."""
    tree = network.tree
    rows = []
    for layer, names in enumerate(tree.names):
        kind = "cloud" if layer == 0 else "device" if layer == tree.depth else "server"
        for i, name in enumerate(names):
            rows.append(
                {
                    "node": name,
                    "layer": layer,
                    "parent": tree.names[layer - 1][tree.parents[layer - 1][i]] if layer else "",
                    "kind": kind,
                    "trusted": bool(layer < tree.depth and network.trust[layer][i]),
                    "adds_noise": bool(network.noise[layer][i] > 0),
                }
            )
    return pd.DataFrame(rows)
