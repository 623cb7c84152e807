"""Positions of data owners: devices that share everything an accountant needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from m2fdp.privacy.premises import Premises
from m2fdp.privacy.variance import certain_inside, family_variances, loudest_inside
from m2fdp.topology.network import Network, no_noise
from m2fdp.topology.sums import readers


@dataclass(frozen=True)
class ModelNoise:
    """The noise about a device's model in a tree of two tiers, in the model's own unit.

    Pairs are of a local aggregation at the device's edge server, and of a global one.

    Attributes:
        share: rho of the device at its edge server.
        edge_share: rho of the edge server at the cloud.
        own: deviations of the device's own noise.
        mean: variances of the noise of all devices of the edge server in its mean.
        mean_but_one: what the loudest sibling, who knows its own, leaves of that; None without
            siblings.
        mean_but_coalition: what the loudest siblings that tell each other leave of it.
        added: variances that the edge server adds to its broadcast, and to its message.
        cloud: the variance that the cloud adds to its broadcast.
        total: the variance of all noise in what the cloud broadcasts.
        elsewhere: how much of that the cloud and all below other edge servers draw.
        total_but_far: what the loudest device elsewhere leaves of it; None without any.
        total_but_servers: what the untrusted servers elsewhere leave of it; None without any.
        edge_is_trusted: whether the edge server is.
    """

    share: float
    edge_share: float
    own: tuple[float, float]
    mean: tuple[float, float]
    mean_but_one: tuple[float, float] | None
    mean_but_coalition: tuple[float, float]
    added: tuple[float, float]
    cloud: float
    total: float
    elsewhere: float
    total_but_far: float | None
    total_but_servers: float | None
    edge_is_trusted: bool


@dataclass(frozen=True, eq=False)
class Position:
    """Devices in equal positions.

    All noises are in the unit of the position's laws, which a record moves its head's message by:
    noise further up is over the weight that this message has there.

    Attributes:
        members: the devices, by index.
        head_layer: the layer of the node whose noise protects them first, their head.
        shares: rho of the nodes on the path from below the head down to the device.
        sampling_rate: q.
        unit: what shift 1 of the laws means.
        noise: the deviation of the head's own noise.
        inside: the variance that nodes below the head add to its message.
        inside_but_one: the same for the worst other device below the head, who knows its own, and
            all of it where some read what is sent inside when they are elected.
        mean: the deviation of what the head and those of its siblings that are heads add to the
            mean that is read of them.
        mean_but_one: the same for the worst sibling of the head, who knows its own noise; None
            without siblings.
        mean_but_colluders: the same for whom the worst of them tell their noise.
        mean_but_super_node: the same for the worst of its siblings that are elected, and those who
            tell it theirs; 0 where none are.
        above: for layer l = 0…h-1 below the head's h, the variance that its ancestor there adds.
        parent_is_trusted: whether the head's parent is a trusted server.
        summed: whether what the head and its siblings send is read as a sum only.
        shared: whether only their noise together is enough, so that none of them acts on its own.
        cloud_reads: whether the cloud reads it, past all servers between.
        elected: whether the head is a lowest server, and these are elected devices.
        joins: the chance of each device to join a round; None where nothing is left to chance.
        unnoticed: whether nothing that leaves the head shows that a device of the position
            joined: the head is a server, the device adds no noise, and no noise counts less for
            its joining; nor does anybody below the head tell.
        masked_up: whether nobody but who reads it can make sense of what is sent, on all the way
            up from the head to the cloud.
        splits: whether the devices split their model with their parent.
        models: what noise there is of models that are bounded themselves; None under mechanisms
            that bound steps.
    """

    members: tuple[int, ...]
    head_layer: int
    shares: tuple[float, ...]
    sampling_rate: float
    unit: float
    noise: float
    inside: float
    inside_but_one: float
    mean: float
    mean_but_one: float | None
    mean_but_colluders: float
    above: tuple[float, ...]
    parent_is_trusted: bool
    summed: bool = False
    shared: bool = False
    cloud_reads: bool = False
    mean_but_super_node: float = 0.0
    elected: bool = False
    joins: float | None = None
    unnoticed: bool = False
    masked_up: bool = False
    splits: bool = False
    models: ModelNoise | None = None

    @property
    def is_device(self) -> bool:
        """Whether each device is its own head."""
        return not self.shares

    @property
    def parent_is_cloud(self) -> bool:
        """Whether the head's parent is the cloud."""
        return self.head_layer == 1

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
        server = f"server of layer {position.head_layer}" if position.head_layer else "cloud"
        where = f"below a trusted {server}"
    return f"{where}, q = {position.sampling_rate:.3g}"


def positions(premises: Premises, noise: Sequence[np.ndarray], units: np.ndarray) -> list[Position]:
    """The classes of devices in equal positions, by first device.

    Noise and units are those of `m2fdp.privacy.ledger.build_ledger`.
    """
    network = premises.network
    depth, sums = network.tree.depth, network.sums
    table = _by_device(premises, noise, units)
    _, first, inverse, counts = np.unique(
        np.round(np.column_stack(list(table.values())), 12),
        axis=0,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    members = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
    result = []
    for device, devices in sorted(zip(first, members, strict=True), key=lambda pair: pair[1][0]):
        row = {name: values[device] for name, values in table.items()}
        head = int(row["head_layer"])
        result.append(
            Position(
                members=tuple(devices.tolist()),
                head_layer=head,
                shares=tuple(float(row[f"share {at}"]) for at in range(head + 1, depth + 1)),
                sampling_rate=float(row["sampling_rate"]),
                unit=float(row["unit"]),
                noise=float(row["noise"]),
                inside=float(row["inside"]),
                inside_but_one=float(row["inside_but_one"]),
                mean=float(row["mean"]),
                mean_but_one=None if row["mean_but_one"] < 0 else float(row["mean_but_one"]),
                mean_but_colluders=float(row["mean_but_colluders"]),
                mean_but_super_node=float(row["mean_but_super_node"]),
                above=tuple(float(row[f"above {at}"]) for at in range(head)),
                parent_is_trusted=bool(row["parent_is_trusted"]),
                summed=head in sums.layers,
                shared=head in sums.layers and sums.shared,
                cloud_reads=head in sums.layers and sums.decode == "cloud",
                elected=network.elected and head == depth - 1,
                joins=network.chance,
                unnoticed=bool(row["unnoticed"]),
                masked_up=sums.masked_up(head),
                splits=bool(row.get("splits", False)),
            )
        )
    return result


def _by_device(
    premises: Premises, noise: Sequence[np.ndarray], units: np.ndarray
) -> dict[str, np.ndarray]:
    """What positions differ in, by name: float64 (N_L,) each."""
    network, heads, rates = premises.network, premises.heads, premises.sampled
    colluding = premises.threat.colluding
    tree, depth = network.tree, network.tree.depth
    names = ("noise", "inside", "inside_but_one", "mean", "mean_but_colluders")
    table = {name: np.zeros(tree.n_devices) for name in (*names, "mean_but_super_node")}
    table |= {"mean_but_one": np.full(tree.n_devices, -1.0)}
    table |= {"parent_is_trusted": np.zeros(tree.n_devices)}
    table |= {"unnoticed": np.zeros(tree.n_devices)}
    table |= {f"above {at}": np.zeros(tree.n_devices) for at in range(depth)}
    table |= {f"share {at}": np.zeros(tree.n_devices) for at in range(1, depth + 1)}
    for layer in np.unique(heads[:, 0]):
        members = np.flatnonzero(heads[:, 0] == layer)
        nodes, unit = heads[members, 1], units[members]
        table["noise"][members] = noise[layer][nodes] / unit
        if layer == 0:  # nobody reads a mean of what the cloud and others broadcast
            for name in ("mean", "mean_but_colluders"):
                table[name][members] = table["noise"][members]
        else:
            parents = tree.parents[layer - 1]
            weights = network.shares(layer, network.sums.reader_layer(layer))
            drawn = list(no_noise(tree))
            drawn[layer][nodes] = noise[layer][nodes]
            family = family_variances(network, drawn, layer, colluding)
            table["mean"][members] = (np.sqrt(family.together) / weights)[nodes] / unit
            told = (np.sqrt(family.but_colluders) / weights)[nodes] / unit
            table["mean_but_colluders"][members] = told
            if network.elected and layer == depth:
                unknown = family.but_one
                if colluding:
                    together = family_variances(network, drawn, layer, colluding + 1)
                    unknown = together.but_colluders
                table["mean_but_super_node"][members] = (np.sqrt(unknown) / weights)[nodes] / unit
            siblings = np.bincount(readers(tree, network.sums, layer))
            siblings = siblings[readers(tree, network.sums, layer)][nodes] > 1
            left = (np.sqrt(family.but_one) / weights)[nodes] / unit
            table["mean_but_one"][members] = np.where(siblings, left, -1.0)
            table["parent_is_trusted"][members] = network.trust[layer - 1][parents[nodes]]
        if layer < depth:
            all_of_it = certain_inside(network, noise, layer)[members]
            one = loudest_inside(network, noise, layer)[members]
            if network.chance is not None:  # each device counts on its own noise alone
                own = network.shares(depth, layer)[members] * noise[depth][members]
                all_of_it = all_of_it + own**2
                one = np.zeros_like(one)
                table["unnoticed"][members] = ~_shows_who_joins(network, colluding)[members]
            table["inside"][members] = all_of_it / unit**2
            table["inside_but_one"][members] = np.maximum(all_of_it - one, 0.0) / unit**2
            if network.elected and layer < depth - 1:
                table["inside_but_one"][members] = 0.0
        for at in range(layer):
            ancestors = tree.ancestors[at][members]
            share = network.shares(layer, at)[nodes]
            table[f"above {at}"][members] = (noise[at][ancestors] / share / unit) ** 2
        for at in range(layer + 1, depth + 1):
            shares = network.weights[at - 1][tree.ancestors[at][members]]
            table[f"share {at}"][members] = shares
    if network.splits is not None:
        table["splits"] = network.splits.astype(np.float64)
        # Who is sent its activations sees which records come.
        rates = np.where(network.splits & (heads[:, 0] == depth), 1.0, rates)
    columns = {"head_layer": heads[:, 0].astype(np.float64), "sampling_rate": rates, "unit": units}
    return columns | table


def _shows_who_joins(network: Network, colluding: int) -> np.ndarray:
    """Of which devices somebody above their lowest server is shown whether they join: bool (N_L,).

    Noise of the device comes with it. Where a zone's sum is over the weight of those who came, the
    others' noise counts less for it; and others who draw noise may collude.
    """
    shows = network.noise[-1] > 0
    participation = network.participation
    by_weight = participation is not None and participation.least_weight is not None
    if not (by_weight or colluding):
        return shows
    zones = network.tree.parents[-1]
    return (np.bincount(zones, weights=shows) > 0)[zones]
