"""Positions of data owners: devices that share everything an accountant needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from m2fdp.topology.network import Network, noise_adders

# The column of `positions`' keys at which rho of layer 1 stands.
_FIRST_SHARE = 8


@dataclass(frozen=True, eq=False)
class Position:
    """Devices in equal positions.

    Attributes:
        members: the devices, by index.
        head_layer: the layer of the node that noises for them, their head.
        is_device: whether each is its own head.
        shares: rho of the nodes on the path from below the head down to the device.
        sampling_rate: q.
        unit: what shift 1 of the laws means.
        noise: the head's noise, in the unit of the position's laws.
        crowd: the noise of the mean that the head's parent forms, over the head's weight in it.
        crowd_without_one: the same for the worst sibling of the head, who knows its own noise;
            None without siblings.
        parent_is_cloud: whether the head's parent is the cloud.
        parent_is_trusted: whether it is a trusted server.
    """

    members: tuple[int, ...]
    head_layer: int
    is_device: bool
    shares: tuple[float, ...]
    sampling_rate: float
    unit: float
    noise: float
    crowd: float
    crowd_without_one: float | None
    parent_is_cloud: bool
    parent_is_trusted: bool = False

    def has_cousins(self, layer: int) -> bool:
        """Whether devices of other lowest servers share the device's ancestor at a layer, which
        is the head's or below it."""
        between = self.shares[layer - self.head_layer : -1]
        return any(share < 1 for share in between)


def position_name(position: Position) -> str:
    """Where the data owner is, in words."""
    if position.is_device:
        where = f"below {'a trusted' if position.parent_is_trusted else 'an untrusted'} parent"
    else:
        where = f"below a trusted server of layer {position.head_layer}"
    return f"{where}, q = {position.sampling_rate:.3g}"


def positions(
    network: Network, rates: np.ndarray, noise: Sequence[np.ndarray], units: np.ndarray
) -> list[Position]:
    """The classes of devices in equal positions, by first device."""
    tree = network.tree
    adders = noise_adders(network)
    depth = tree.depth
    # Columns: head layer, q, unit, noise, crowd, crowd without one, cloud above, trusted above,
    # shares.
    keys = np.zeros((tree.n_devices, _FIRST_SHARE + depth))
    keys[:, 0] = adders[:, 0]
    keys[:, 1] = rates
    keys[:, 2] = units
    for layer in np.unique(adders[:, 0]):
        members = np.flatnonzero(adders[:, 0] == layer)
        heads = adders[members, 1]
        weights, parents = network.weights[layer - 1], tree.parents[layer - 1]
        variance = (weights * noise[layer - 1]) ** 2
        if layer == depth and network.participants is not None:
            # Its own noise, and that of the quietest sibling for everybody present besides.
            least = np.full(tree.n_nodes(layer - 1), inf)
            np.minimum.at(least, parents[heads], variance[heads])
            quietest = np.where(least < inf, least, 0.0)[parents]
            present = network.present[parents]
            together = variance + quietest * (present - 1)
            others = variance + quietest * np.maximum(present - 2, 0)
        else:
            together = np.bincount(parents, weights=variance)[parents]
            others = np.maximum(together - _loudest_sibling(parents, variance), 0)
        others[tree.n_children(layer - 1)[parents] == 1] = -1
        for column, scale in (
            (3, noise[layer - 1]),
            (4, np.sqrt(together) / weights),
            (5, np.where(others >= 0, np.sqrt(np.maximum(others, 0)) / weights, -1)),
        ):
            known = scale[heads] >= 0
            keys[members, column] = np.where(known, scale[heads] / units[members], -1)
        keys[members, 6] = layer == 1
        keys[members, 7] = network.trust[layer - 1][parents[heads]]
        for below in range(layer + 1, depth + 1):
            shares = network.weights[below - 1][tree.ancestors[below][members]]
            keys[members, _FIRST_SHARE + below - 1] = shares
    _, first, inverse, counts = np.unique(
        np.round(keys, 12), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    members = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
    return [
        Position(
            members=tuple(devices.tolist()),
            head_layer=int(key[0]),
            is_device=int(key[0]) == depth,
            shares=tuple(key[_FIRST_SHARE + int(key[0]) :].tolist()),
            sampling_rate=float(key[1]),
            unit=float(key[2]),
            noise=float(key[3]),
            crowd=float(key[4]),
            crowd_without_one=None if key[5] < 0 else float(key[5]),
            parent_is_cloud=bool(key[6]),
            parent_is_trusted=bool(key[7]),
        )
        for key, devices in sorted(zip(keys[first], members, strict=True), key=lambda r: r[1][0])
    ]


def _loudest_sibling(parents: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """For each node the largest variance among its siblings, itself left out; 0 if none."""
    n = int(parents.max()) + 1
    order = np.lexsort((-variance, parents))
    starts = np.searchsorted(parents[order], np.arange(n))
    best = order[starts]
    largest = variance[best][parents]
    second = np.zeros(n)
    has_second = np.bincount(parents, minlength=n) > 1
    second[has_second] = variance[order[starts[has_second] + 1]]
    mine = best[parents] == np.arange(len(parents))
    return np.where(mine, second[parents], largest)
