"""Trees from fan-outs, or as a room reads them."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

import numpy as np

from m2fdp.core.config import TopologyConfig
from m2fdp.core.errors import InputError
from m2fdp.core.own_code import GIVEN
from m2fdp.core.topology.tree import Tree

MAX_NODES = 1_000_000


def build_tree(config: TopologyConfig) -> Tree:
    """The tree a configuration describes.

    Raises:
        InputError: the edge list is no tree with all devices at one layer, or contradicts
            `fanouts` where both are given.
    """
    if config.edges is None:
        return tree_from_fanouts(config.fanouts or [])
    tree: Tree = GIVEN["topology.edges"](config.edges)
    if config.fanouts is not None:
        _check_fanouts(tree, config)
    return tree


def tree_from_fanouts(fanouts: Sequence[int]) -> Tree:
    """The balanced tree in which every node of layer l has fanouts[l] children.

    `[10, 5]` is a cloud, 10 edge servers and 5 devices below each of them.

    Raises:
        InputError: more nodes than fit in memory.
    """
    n_nodes = sum(accumulate(fanouts, mul))
    if n_nodes > MAX_NODES:
        problem = f"make {n_nodes:,} nodes; at most {MAX_NODES:,} are possible"
        raise InputError("topology.fanouts", "|".join(map(str, fanouts)), problem)
    sizes = np.cumprod([1, *fanouts])
    parents = tuple(
        np.repeat(np.arange(n_parents), fanout)
        for n_parents, fanout in zip(sizes[:-1], fanouts, strict=True)
    )
    servers = [
        tuple(f"server-{layer}-{i}" for i in range(sizes[layer]))
        for layer in range(1, len(fanouts))
    ]
    devices = tuple(f"device-{i}" for i in range(sizes[-1]))
    return Tree(parents, (("cloud",), *servers, devices))


def star(tree: Tree) -> Tree:
    """The depth-1 tree in which the same devices are children of the cloud."""
    return Tree((np.zeros(tree.n_devices, dtype=np.int64),), (tree.names[0], tree.names[-1]))


def _check_fanouts(tree: Tree, config: TopologyConfig) -> None:
    fanouts = [sorted(set(tree.n_children(layer).tolist())) for layer in range(tree.depth)]
    if fanouts != [[fanout] for fanout in config.fanouts or []]:
        found = f"the edge list {config.edges} has {fanouts} children a node by layer"
        remedy = "leave one of the two out or make them agree"
        raise InputError("topology.fanouts", config.fanouts, f"{found}; {remedy}")
