"""The positions of a run's devices: which are alike, and behind how much noise."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m2fdp.core.privacy.premises import Position as Position
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.sight import BESIDE, COLLUDING, NOBODY, TOGETHER
from m2fdp.core.privacy.variance import certain_inside, family_variance, loudest_inside
from m2fdp.core.topology.network import Network, readers


def position_name(position: Position) -> str:
    """Where the data owner is, in words."""
    if position.is_device:
        where = f"below {'a trusted' if position.parent_is_trusted else 'an untrusted'} parent"
    else:
        server = f"server of layer {position.head_layer}" if position.head_layer else "cloud"
        where = f"below a trusted {server}"
    return f"{where}, q = {position.sampling_rate:.3g}"


def positions(premises: Premises, noise: Sequence[np.ndarray], units: np.ndarray) -> list[Position]:
    """The classes of devices in equal positions, by first device; for noise and units see
    `m2fdp.core.privacy.ledger.build_ledger`."""
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
                tuple(_named("share", row).values()),
                row["sampling_rate"],
                row["unit"],
                row["noise"],
                _named("inside but", row),
                _named("mean but", row),
                tuple(_named("above", row).values()),
                *(bool(row[name]) for name in _YES_OR_NO),
            )
            result.append(position)
    return sorted(result, key=lambda position: position.members[0])


_YES_OR_NO = "parent_is_trusted", "has_siblings", "splits", "unnoticed"


def _named(first: str, row: Mapping[str, float]) -> dict[str, float]:
    """The numbers whose names begin so, by the rest of their names."""
    named = (name for name in row if name.startswith(f"{first} "))
    return {name.removeprefix(f"{first} "): row[name] for name in named}


def _columns(
    premises: Premises,
    noise: Sequence[np.ndarray],
    units: np.ndarray,
    layer: int,
    members: np.ndarray,
) -> dict[str, Any]:
    """What positions differ in, by name: a number for all members, or one each. The members are all
    devices with a head at the layer."""
    network, depth = premises.network, premises.network.tree.depth
    path, unit = [nodes[members] for nodes in network.tree.ancestors], units[members]
    splits = np.zeros(len(members), bool) if network.splits is None else network.splits[members]
    trusted = network.trust[layer - 1][path[layer - 1]] if layer else False
    read_beside = 1
    if layer:
        of_node = readers(network.tree, network.sums, layer)
        read_beside = np.bincount(of_node)[of_node][path[layer]]
    columns = {
        # Who is sent the activations of a device that splits sees which records come.
        "sampling_rate": np.where(splits & (layer == depth), 1.0, premises.sampled[members]),
        "unit": unit,
        "splits": splits,
        "parent_is_trusted": trusted,
        "noise": noise[layer][path[layer]] / unit,
        "unnoticed": (layer < depth) & _unnoticed(premises)[members],
        "has_siblings": read_beside > 1,
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
    if network.members_serve and layer < depth - 1:
        largest = whole
    return {NOBODY: whole, BESIDE: np.maximum(whole - largest, 0.0)}


def _in_mean(premises: Premises, noise: Sequence[np.ndarray], layer: int) -> dict[str, np.ndarray]:
    """The deviation of the noise of a layer's heads in the mean that is read of them, over each
    one's weight there, by whose part is known: float64 (N_layer,)."""
    network, colluding = premises.network, premises.threat.colluding
    # By who knows: how many others' noise, and whether these tell each other.
    knows = {NOBODY: (0, False), BESIDE: (1, False), COLLUDING: (colluding, colluding > 0)}
    if network.members_serve and layer == network.tree.depth:
        knows[TOGETHER] = (colluding + 1, colluding > 0)
    if layer == 0:  # nobody reads a mean of what the cloud and others broadcast
        return dict.fromkeys(knows, noise[0])
    heads = premises.heads[premises.head_layers == layer, 1]
    drawn = np.zeros_like(noise[layer])
    drawn[heads] = noise[layer][heads]
    weights = network.shares(layer, network.sums.reader_layer(layer))
    return {
        who: np.sqrt(family_variance(network, drawn, layer, *known)) / weights
        for who, known in knows.items()
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
    parents = network.tree.parents[-1]
    return (np.bincount(parents, weights=~silent) == 0)[parents]
