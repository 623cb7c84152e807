"""Trees from fan-outs or from an explicit edge list."""

import re
from collections.abc import Sequence
from functools import partial
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
    tree = tree_from_edges(edges_of(config))
    if config.fanouts is not None:
        _check_fanouts(tree, config)
    return tree


def edges_of(config: TopologyConfig) -> list[tuple[str, str]]:
    """The (parent, child) pairs that a configuration gives, or the file that it names."""
    if isinstance(config.edges, list):
        return [(parent, child) for parent, child in config.edges]
    pairs: list[tuple[str, str]] = GIVEN["topology.edges"](config.edges)
    return pairs


def tree_from_fanouts(fanouts: Sequence[int]) -> Tree:
    """The balanced tree in which every node of layer l has fanouts[l] children.

    `[10, 5]` is a cloud, 10 edge servers and 5 devices below each of them.

    Raises:
        InputError: more nodes than fit in memory.
    """
    n_nodes = sum(accumulate(fanouts, mul))
    if n_nodes > MAX_NODES:
        raise InputError(
            "topology.fanouts",
            "|".join(map(str, fanouts)),
            f"make {n_nodes:,} nodes; at most {MAX_NODES:,} are possible",
        )
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


def tree_from_edges(edges: Sequence[tuple[str, str]]) -> Tree:
    """The tree of (parent, child) pairs, whatever their order: siblings are in that of their names.

    Raises:
        InputError: an edge twice, two parents of a node, several roots, a cycle, or devices
            (nodes without children) at different layers.
    """
    refuse = partial(InputError, "topology.edges")
    children: dict[str, list[str]] = {}
    parent_of: dict[str, str] = {}
    for parent, child in edges:
        if child == "-1":  # in a manifest's column `device`
            raise refuse(child, "stands for the cloud in manifests; valid: another name")
        if parent_of.get(child) == parent:
            raise refuse(f"{parent},{child}", "is listed twice; keep one of the two")
        if child in parent_of:
            both = f"{parent_of[child]} and {parent}"
            problem = f"has two edges from above, {both}; every node has exactly one parent"
            raise refuse(child, problem)
        parent_of[child] = parent
        children.setdefault(parent, []).append(child)
    roots = [node for node in children if node not in parent_of]
    if not roots:
        problem = "is on a cycle; the edges must form one tree with one root, the cloud"
        raise refuse(_on_a_cycle(parent_of), problem)
    if len(roots) > 1:
        raise refuse(roots, "the edges must form one tree with one root, the cloud")
    # By numbers who is who would depend on the order of the rows, and nobody would be told.
    for siblings in children.values():
        siblings.sort(key=_by_number)
    layers = [roots]
    parents: list[np.ndarray] = []
    while any(node in children for node in layers[-1]):
        childless = [node for node in layers[-1] if node not in children]
        if childless:
            problem = f"ends at layer {len(layers) - 1} while other branches go deeper"
            raise refuse(childless[0], f"{problem}; all devices must be at one layer")
        fanouts = [len(children[node]) for node in layers[-1]]
        parents.append(np.repeat(np.arange(len(fanouts)), fanouts))
        layers.append([child for node in layers[-1] for child in children[node]])
    reached = {node for layer in layers for node in layer}
    unreached = {child: parent for child, parent in parent_of.items() if child not in reached}
    if unreached:
        raise refuse(_on_a_cycle(unreached), "is on a cycle; the edges must form a tree")
    return Tree(tuple(parents), tuple(tuple(layer) for layer in layers))


def _by_number(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    """A name's place: numbers in it count by their value, `device-2` before `device-10`."""
    parts = re.findall(r"0*([0-9]+)|([^0-9]+)", name)
    return [(text != "", len(number), number or text) for number, text in parts], name


def _on_a_cycle(parent_of: dict[str, str]) -> str:
    """A node from which the way up comes back to it, where no way up ends."""
    node, passed = min(parent_of), set()
    while node not in passed:
        passed.add(node)
        node = parent_of[node]
    return node


def _check_fanouts(tree: Tree, config: TopologyConfig) -> None:
    fanouts = [sorted(set(tree.n_children(layer).tolist())) for layer in range(tree.depth)]
    if fanouts != [[fanout] for fanout in config.fanouts or []]:
        raise InputError(
            "topology.fanouts",
            config.fanouts,
            f"the edge list {config.edges} has {fanouts} "
            "children a node by layer; leave one of the two out or make them agree",
        )
