"""Positions of data owners: devices that share everything an accountant needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from m2fdp.core.privacy.premises import Premises, Route
from m2fdp.core.privacy.sight import BESIDE, COLLUDING, ELECTED, NOBODY
from m2fdp.core.privacy.variance import certain_inside, family_variance, loudest_inside
from m2fdp.core.topology.network import Network, readers


@dataclass(frozen=True, eq=False)
class Position(Route):
    """Devices in equal positions.

    All noises are in the unit of the position's laws, which a record moves its head's message by.
    Noise further up is over the weight of this message there. An observer may know a part of noise
    that many nodes draw: `mean` and `inside` are keyed by whose noise it knows, in the words of
    `m2fdp.core.privacy.sight`.

    Attributes:
        sampling_rate: q.
        unit: what shift 1 of the laws means.
        noise: the deviation of the head's own noise.
        inside: the variance that nodes below the head add to its message (NOBODY). BESIDE leaves
            out the loudest other device's, and all where elected devices read what is sent inside.
        mean: the deviation of the noise of the head and of its siblings that are heads, in the mean
            that is read of them (NOBODY). BESIDE leaves out the loudest sibling's, COLLUDING that
            of all who tell theirs, ELECTED the elected device's and that of those who tell it.
        above: the variance that the head's ancestor of each layer l = 0…h-1 adds, h the head's.
        unnoticed: whether nothing that leaves the head shows that a device of the position joined.
    """

    sampling_rate: float
    unit: float
    noise: float
    inside: Mapping[str, float]
    mean: Mapping[str, float]
    above: tuple[float, ...]
    unnoticed: bool = False


def position_name(position: Position) -> str:
    """Where the data owner is, in words."""
    if position.is_device:
        where = f"below {'a trusted' if position.parent_is_trusted else 'an untrusted'} parent"
    else:
        server = f"server of layer {position.head_layer}" if position.head_layer else "cloud"
        where = f"below a trusted {server}"
    return f"{where}, q = {position.sampling_rate:.3g}"


def positions(premises: Premises, noise: Sequence[np.ndarray], units: np.ndarray) -> list[Position]:
    """The classes of devices in equal positions, by first device.

    For noise and units see `m2fdp.core.privacy.ledger.build_ledger`.
    """
    result = []
    for head in np.unique(premises.head_layers).tolist():
        members = np.flatnonzero(premises.head_layers == head)
        columns = {
            name: np.broadcast_to(np.asarray(column, dtype=np.float64), len(members))
            for name, column in _columns(premises, noise, units, head, members).items()
        }
        rows = np.stack([column.round(12) for column in columns.values()], axis=1)
        _, first, class_of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        ends = np.bincount(class_of).cumsum()[:-1]
        classes = np.split(members[class_of.argsort(kind="stable")], ends)
        for at, of_class in zip(first, classes, strict=True):
            row = {name: float(column[at]) for name, column in columns.items()}
            position = Position(
                premises.network,
                tuple(of_class.tolist()),
                head,
                tuple(row[name] for name in row if name.startswith("share")),
                row["sampling_rate"],
                row["unit"],
                row["noise"],
                {who: row[f"inside but {who}"] for who in (NOBODY, BESIDE)},
                {who: row[f"mean but {who}"] for who in (NOBODY, BESIDE, COLLUDING, ELECTED)},
                tuple(row[f"above {layer}"] for layer in range(head)),
                bool(row["unnoticed"]),
            )
            result.append(position)
    return sorted(result, key=lambda position: position.members[0])


def _columns(
    premises: Premises,
    noise: Sequence[np.ndarray],
    units: np.ndarray,
    layer: int,
    members: np.ndarray,
) -> dict[str, Any]:
    """What positions differ in, by name: a number for all members, or one each.

    Args:
        layer: the layer of the heads.
        members: int64 (n,), all devices with a head there.
    """
    network, depth = premises.network, premises.network.tree.depth
    path, unit = [nodes[members] for nodes in network.tree.ancestors], units[members]
    splits = np.zeros(len(members), bool) if network.splits is None else network.splits[members]
    trusted = network.trust[layer - 1][path[layer - 1]] if layer else False
    columns = {
        # Who is sent the activations of a device that splits sees which records come.
        "sampling_rate": np.where(splits & (layer == depth), 1.0, premises.sampled[members]),
        "unit": unit,
        "splits": splits,
        "parent_is_trusted": trusted,
        "noise": noise[layer][path[layer]] / unit,
        "unnoticed": (layer < depth) & _unnoticed(premises)[members],
        "has_siblings": _group_sizes(network, layer)[path[layer]] > 1,
    }
    for who, variance in _inside(network, noise, layer).items():
        columns[f"inside but {who}"] = variance[members] / unit**2
    for who, deviation in _in_mean(premises, noise, layer).items():
        columns[f"mean but {who}"] = deviation[path[layer]] / unit
    for at in range(layer):
        share = network.shares(layer, at)[path[layer]]
        columns[f"above {at}"] = (noise[at][path[at]] / share / unit) ** 2
    for at in range(layer + 1, depth + 1):
        columns[f"share {at}"] = network.weights[at - 1][path[at]]
    return columns


def _group_sizes(network: Network, layer: int) -> np.ndarray:
    """Of how many nodes the reader of each node of a layer reads the messages: int64 (N_layer,)."""
    if layer == 0:
        return np.ones(1, dtype=np.int64)
    of_node = readers(network.tree, network.sums, layer)
    return np.bincount(of_node)[of_node]


def _inside(network: Network, noise: Sequence[np.ndarray], layer: int) -> dict[str, np.ndarray]:
    """The variance from below each device's ancestor at a layer, by whose part is known: (N_L,)."""
    depth = network.tree.depth
    if layer == depth:
        return dict.fromkeys((NOBODY, BESIDE), np.zeros(network.tree.n_devices))
    whole = certain_inside(network, noise, layer)
    largest = loudest_inside(network, noise, layer)
    if network.chance is not None:  # each device counts on its own noise alone
        whole = whole + (network.shares(depth, layer) * noise[depth]) ** 2
        largest = np.zeros_like(largest)
    if network.elected and layer < depth - 1:
        largest = whole
    return {NOBODY: whole, BESIDE: np.maximum(whole - largest, 0.0)}


def _in_mean(premises: Premises, noise: Sequence[np.ndarray], layer: int) -> dict[str, np.ndarray]:
    """The deviation of the noise of a layer's heads in the mean that is read of them, over each
    one's weight there, by whose part is known: float64 (N_layer,)."""
    network, colluding = premises.network, premises.threat.colluding
    if layer == 0:  # nobody reads a mean of what the cloud and others broadcast
        return dict.fromkeys((NOBODY, BESIDE, COLLUDING, ELECTED), noise[0])
    heads = premises.heads[premises.head_layers == layer, 1]
    drawn = np.zeros_like(noise[layer])
    drawn[heads] = noise[layer][heads]
    pooled = colluding > 0
    counts = {NOBODY: (0, False), BESIDE: (1, False), COLLUDING: (colluding, pooled)}
    elected = network.elected and layer == network.tree.depth
    counts[ELECTED] = (colluding + 1, pooled) if elected else counts[NOBODY]
    weights = network.shares(layer, network.sums.reader_layer(layer))
    return {
        who: np.sqrt(family_variance(network, drawn, layer, *count)) / weights
        for who, count in counts.items()
    }


def _unnoticed(premises: Premises) -> np.ndarray:
    """The devices that join by chance, shown by nothing above their lowest server: bool (N_L,).

    A device's own noise would show it. So would others' noise where it counts less for the device,
    or where those who draw it may collude.
    """
    network, participation = premises.network, premises.network.participation
    silent = network.noise[-1] == 0
    if network.chance is None:
        return np.zeros_like(silent)
    by_weight = participation is not None and participation.least_weight is not None
    if not (by_weight or premises.threat.colluding):
        return silent
    zones = network.tree.parents[-1]
    return (np.bincount(zones, weights=~silent) == 0)[zones]
