"""Which servers are trusted (J Sec. II-B): ratios or explicit names, and the closure of eq. 4.

A `Trust` holds, for layer l = 0…L-1 (index l), a boolean array (N_l,): is the server trusted.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from m2fdp.core.config import TopologyConfig, TrustConfig
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import counted, some_of
from m2fdp.core.streams import generator
from m2fdp.core.topology.tree import Tree

Trust = tuple[np.ndarray, ...]


def build_trust(tree: Tree, config: TopologyConfig, seed: int) -> Trust:
    """The trust a configuration describes; without one, no server is trusted.

    Raises:
        InputError: shares for other layers than the tree has, or names that are not its servers'.
    """
    trust = config.trust
    if trust.untrusted is not None:
        return explicit_trust(tree, trust.untrusted)
    if trust.ratios is None:
        return all_untrusted(tree)
    if trust.ratios == TrustConfig().ratios and tree.depth != 1 + len(trust.ratios):
        # Who has left them at their default has set the tree alone.
        given = "fanouts" if config.edges is None else "edges"
        shares = "|".join(map(str, trust.ratios * (tree.depth - 1)))
        raise InputError(
            f"topology.{given}",
            getattr(config, given),
            f"has {counted(tree.depth - 1, 'layer')} of servers, and topology.trust.ratios = "
            f"{trust.ratios} is for 1; add topology.trust.ratios={shares or 'null'}"
            f"{', or servers, as in 10|5' if tree.depth == 1 else ', a share for each layer'}",
        )
    return draw_trust(tree, trust.ratios, seed)


def all_untrusted(tree: Tree) -> Trust:
    """No server is trusted."""
    return tuple(np.zeros(tree.n_nodes(layer), dtype=bool) for layer in range(tree.depth))


def all_trusted(tree: Tree) -> Trust:
    """Every server is trusted, and so is the cloud."""
    return tuple(np.ones(tree.n_nodes(layer), dtype=bool) for layer in range(tree.depth))


def all_but_the_cloud(tree: Tree) -> Trust:
    """Every server is trusted; the cloud is not."""
    return (np.array([False]), *all_trusted(tree)[1:])


def draw_trust(tree: Tree, ratios: Sequence[float], seed: int) -> Trust:
    """Trust by the shares p_1…p_{L-1} of trusted nodes among the children of untrusted nodes.

    Of an untrusted node's s children, round(p_l·s) are trusted (half up), the first in an order
    that is drawn once per parent. So trusted sets of one seed are nested in p. Children of a
    trusted node are trusted (J eq. 4).

    Raises:
        InputError: `ratios` has not one entry a layer of servers.
    """
    if len(ratios) != tree.depth - 1:
        raise InputError(
            "topology.trust.ratios",
            list(ratios),
            f"needs {counted(tree.depth - 1, 'number')}, p_1…p_L-1, one for each layer of servers "
            f"between the cloud and the devices{'' if tree.depth > 1 else '; write none as []'}",
        )
    trust = [np.array([False])]
    for layer, ratio in enumerate(ratios, start=1):
        parents = tree.parents[layer - 1]
        trusted = np.ones(tree.n_nodes(layer), dtype=bool)
        for parent in np.flatnonzero(~trust[-1]):
            children = np.flatnonzero(parents == parent)
            order = generator(seed, "trust", layer, int(parent)).permutation(children)
            trusted[order[int(np.floor(ratio * len(children) + 0.5)) :]] = False
        trust.append(trusted)
    return tuple(trust)


def explicit_trust(tree: Tree, untrusted: Sequence[str]) -> Trust:
    """Trust from the names of the untrusted servers; the cloud is untrusted in any case.

    Raises:
        InputError: a name is no server, or a trusted server has an untrusted child (eq. 4).
    """
    refuse = partial(InputError, "topology.trust.untrusted")
    servers = {name for layer in tree.names[:-1] for name in layer}
    no_servers = [name for name in untrusted if name not in servers]
    if no_servers:
        problem = f"is no server of this tree, whose servers are {some_of(sorted(servers))}"
        raise refuse(no_servers[0], problem)
    trust = tuple(
        np.array([layer > 0 and name not in untrusted for name in names])
        for layer, names in enumerate(tree.names[:-1])
    )
    for layer in range(1, tree.depth):
        parents = tree.parents[layer - 1]
        broken = np.flatnonzero(~trust[layer] & trust[layer - 1][parents])
        if broken.size:
            child = tree.names[layer][broken[0]]
            parent = tree.names[layer - 1][parents[broken[0]]]
            problem = f"is untrusted, so its parent {parent} is untrusted too (J eq. 4)"
            raise refuse(child, f"{problem}; add the parent to the list")
    return trust
