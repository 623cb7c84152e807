"""Poisson-sampled minibatches (J eq. 6), drawn for all devices of a step at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from m2fdp.streams import generator
from m2fdp.topology.network import Network
from m2fdp.topology.tree import Tree


@dataclass(frozen=True, eq=False)
class Draw:
    """The records that the devices use in one local step.

    Attributes:
        positions: int64 (m,), positions in the concatenated shards, in order.
        counts: int64 (n_devices,), the drawn sizes; zero is legal.
    """

    positions: np.ndarray
    counts: np.ndarray


def sampling_rates(sizes: np.ndarray, batch_size: float | None) -> np.ndarray:
    """q_j = min(1, B/D_j) per device, float64; B null means the whole shard."""
    if batch_size is None:
        return np.ones(len(sizes))
    return np.minimum(1.0, batch_size / sizes)


def poisson_draw(
    sizes: np.ndarray,
    rates: np.ndarray,
    present: np.ndarray,
    seed: int,
    round_: int,
    step: int,
) -> Draw:
    """Every record of device j enters independently with probability q_j.

    The stream of a step is keyed by (seed, round, step); a record's number in it is its
    position in the concatenated shards, whoever takes part.

    Args:
        present: bool (n_devices,); no record of the others enters.
    """
    if (rates == 1.0).all():
        chosen = np.repeat(present, sizes)
    else:
        uniforms = generator(seed, "minibatch", round_, step).random(int(sizes.sum()))
        chosen = uniforms < np.repeat(rates * present, sizes)
    ends = np.concatenate([[0], np.cumsum(chosen)])[np.cumsum(sizes)]
    return Draw(np.flatnonzero(chosen), np.diff(ends, prepend=0))


def draw_participants(network: Network, seed: int, round_: int) -> np.ndarray:
    """The devices that take part in a round, uniform below each lowest server: bool (N_L,)."""
    present, children = network.present, network.tree.n_children(network.tree.depth - 1)
    if (present == children).all():
        return np.ones(network.tree.n_devices, dtype=bool)
    order = generator(seed, "participants", round_).random(network.tree.n_devices)
    return sibling_rank(network.tree, order) < present[network.tree.parents[-1]]


def sibling_rank(tree: Tree, order: np.ndarray) -> np.ndarray:
    """Each device's place, from 0, among its siblings by `order`: int64 (N_L,)."""
    parents = tree.parents[-1]
    places = np.empty(tree.n_devices, dtype=np.int64)
    places[np.lexsort((order, parents))] = np.arange(tree.n_devices)
    first = np.cumsum(tree.n_children(tree.depth - 1)) - tree.n_children(tree.depth - 1)
    return places - first[parents]
