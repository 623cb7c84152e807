"""A network: the tree, who is trusted in it, what weighs how much, and who adds how much noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from m2fdp.core.config import TrainingConfig
from m2fdp.core.errors import InputError
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import Trust


@dataclass(frozen=True, eq=False)
class Participation:
    """Devices that join a round by chance, and what their server makes of updates (H Alg. 1).

    Every device joins a round with probability q, by itself (Poisson sampling). The model of its
    lowest server moves by the weighted sum of the updates of those
    who do, over a public number. H as printed divides by the weight of who came, which doubles what
    one device moves the sum by, and shows in the noise's scale how many there were.

        fixed:   sum of w_j Delta_j / (q W_i), W_i the w_j of all devices of server i,
        clipped: sum of w_j Delta_j / max(q W_min, sum of w_j of those who came)

    (McMahan et al. 2018, "Learning differentially private recurrent language models", f_f, f_c).

    Attributes:
        rate: q.
        caps: float64 (N_L,), w_j, above 0 and at most 1.
        least_weight: W_min of `clipped`; None is `fixed`.
    """

    rate: float
    caps: np.ndarray
    least_weight: float | None = None

    def of_all(self, servers: np.ndarray) -> np.ndarray:
        """float64 (N_L,): each device's part of the weight of all devices of its lowest
        server, by `servers`: int64 (N_L,)."""
        return self.caps / np.bincount(servers, weights=self.caps)[servers]

    def weights(self, servers: np.ndarray) -> np.ndarray:
        """float64 (N_L,): the most that each device's update weighs in its server's sum."""
        if self.least_weight is None:
            return self.of_all(servers) / self.rate
        return self.caps / (self.rate * self.least_weight)

    def weights_among(self, servers: np.ndarray, present: np.ndarray) -> np.ndarray:
        """The same in a round of those present, bool (N_L,)."""
        if self.least_weight is None:
            return self.weights(servers)
        came = np.bincount(servers, weights=self.caps * present)
        return self.caps / np.maximum(self.rate * self.least_weight, came)[servers]


@dataclass(frozen=True)
class SecureSums:
    """Secure aggregation in a network.

    A group are those whose messages one node reads as a sum. Members may fall silent, and a group
    of fewer than its threshold is lost: nobody reads anything of it.

    Attributes:
        layers: l of 1…L whose nodes' messages are read as sums only.
        decode: who reads the sums: the senders' parent; or the cloud, past servers that add words.
        shared: whether only the noise of a group together is enough.
        threshold: t; None = floor(2n/3) + 1 of n.
        dropout: the chance that a member falls silent.
        cloud: the layer of the cloud; another than 0 where something stands above it.
    """

    layers: frozenset[int] = frozenset()
    decode: Literal["parent", "cloud"] = "parent"
    shared: bool = False
    threshold: int | None = None
    dropout: float = 0.0
    cloud: int = 0

    def reader_layer(self, layer: int) -> int:
        """The layer of those who read what nodes of a layer send."""
        return self.cloud if layer in self.layers and self.decode == "cloud" else layer - 1

    def masked_up(self, layer: int) -> bool:
        """Whether all links from nodes of a layer up to the cloud carry masked words only."""
        if layer not in self.layers or self.decode == "cloud":
            return layer in self.layers
        return all(at in self.layers for at in range(self.cloud + 1, layer))

    def least_members(self, members: np.ndarray) -> np.ndarray:
        """t of groups of n members each, int64."""
        usual = 2 * np.asarray(members) // 3 + 1
        return usual if self.threshold is None else np.full_like(usual, self.threshold)

    def fewest(self, layer: int, members: np.ndarray, colluding: int = 0) -> np.ndarray:
        """How many of n members are in every sum that is read, int64: all if none falls silent."""
        if layer in self.layers and (self.dropout > 0 or colluding > 0):
            return np.minimum(members, self.least_members(members))
        return members


# Every message is read as it is sent.
OPEN = SecureSums()


def readers(tree: Tree, sums: SecureSums, layer: int) -> np.ndarray:
    """Who reads what each node of a layer sends: int64 (N_layer,), indices in `reader_layer`."""
    return tree.ancestors_of(layer, sums.reader_layer(layer))


@dataclass(frozen=True, eq=False)
class Network:
    """What an algorithm trains over.

    Attributes:
        tree: the aggregation tree.
        trust: see `m2fdp.core.topology.trust`.
        noise: float64 (N_l,), for layer l = 0…L (index l). Each node adds this part of its full
            noise to what it sends up; the cloud, to its broadcast at a round's end. A part is 0 for
            none, 1 for all, 1/sqrt(n) for a share of n nodes. Several on one path may add some.
        participants: devices of each lowest server that take part in a round, at most (s_c^t
            of J eq. 27): one number, int64 (N_{L-1},), or None, which means all.
        rho: float64 (N_l,), for layer l = 1…L (index l-1): each node's weight at its parent, whose
            children's weights sum to one; None = uniform over those who take part.
        sums: which messages are read as sums only.
        participation: who joins a round by chance; None = all, or `participants`. Then weights of
            devices need not sum to one, and updates are aggregated instead of models.
        members_serve: whether each lowest server is one of its own devices, in turn.
        splits: bool (N_L,), the devices that split their model with their parent and send it their
            records' activations; None = nobody.

    Raises:
        InputError: weights by sample count together with participants: the sums would not be of
            weights that sum to one; or with chance, which brings weights of its own.
    """

    tree: Tree
    trust: Trust
    noise: tuple[np.ndarray, ...]
    participants: int | np.ndarray | None = None
    rho: tuple[np.ndarray, ...] | None = None
    sums: SecureSums = OPEN
    participation: Participation | None = None
    members_serve: bool = False
    splits: np.ndarray | None = None

    def __post_init__(self) -> None:
        refuse = partial(InputError, "topology.weights", "samples")
        if self.rho is not None and self.participation is not None:
            raise refuse(
                "is not defined for devices that join by chance (training.participation) or whose "
                "updates are weighed (training.estimator); use uniform"
            )
        if self.rho is not None and self.participants is not None:
            everybody = "all devices in every round (training.participants: null, and no control)"
            raise refuse(f"needs {everybody}; use uniform")

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        """rho: for layer l = 1…L, float64 (N_l,), each node's weight at its parent; a device's in
        rounds that it joins, or the largest that it may have there."""
        if self.rho is not None:
            return self.rho
        uniform = self.tree.uniform_weights
        if self.participation is not None:
            servers, everybody = self.tree.parents[-1], np.ones(self.tree.n_devices, dtype=bool)
            if self.chance is None:
                return (*uniform[:-1], self.participation.weights_among(servers, everybody))
            return (*uniform[:-1], self.participation.weights(servers))
        return (*uniform[:-1], 1.0 / self.present[self.tree.parents[-1]])

    @property
    def present(self) -> np.ndarray:
        """int64 (N_{L-1},): how many devices of each lowest server take part in a round, or may."""
        children = self.tree.n_children(self.tree.depth - 1)
        return children if self.participants is None else np.minimum(children, self.participants)

    @property
    def chance(self) -> float | None:
        """The chance of every device to join a round; None where nothing is left to chance."""
        if self.participation is None or self.participation.rate == 1.0:
            return None
        return self.participation.rate

    @property
    def odds(self) -> np.ndarray:
        """float64 (N_L,): how often each device takes part in a round."""
        tree = self.tree
        if self.participation is not None:
            return np.full(tree.n_devices, self.participation.rate)
        return (self.present / tree.n_children(tree.depth - 1))[tree.parents[-1]]

    def smallest_fanout(self, layer: int) -> int:
        """s_l: the smallest number of children of layer l that take part in a round."""
        lowest = layer == self.tree.depth - 1
        return int(self.present.min()) if lowest else self.tree.smallest_fanout(layer)

    def shares(self, layer: int, top: int) -> np.ndarray:
        """Each node's weight in its ancestor's model at layer `top`, the product of rho on the path
        up: float64 (N_layer,)."""
        result = np.ones(self.tree.n_nodes(layer))
        nodes = np.arange(len(result))
        weights = self.weights
        for at in range(layer, top, -1):
            result = result * weights[at - 1][nodes]
            nodes = self.tree.parents[at - 1][nodes]
        return result

    def group_sizes(self, layer: int) -> np.ndarray:
        """For each node of a layer, the number of nodes with the same reader in a round: int64."""
        of_node = readers(self.tree, self.sums, layer)
        if layer == self.tree.depth:
            of_server = self.tree.ancestors_of(layer - 1, self.sums.reader_layer(layer))
            sizes = np.bincount(of_server, weights=self.present)
        else:
            sizes = np.bincount(of_node)
        return sizes.astype(np.int64)[of_node]


def weighted(
    network: Network, shard_sizes: np.ndarray, kind: Literal["uniform", "samples"]
) -> Network:
    """The network with the configured weights, by the devices' D_j, int64 (N_L,); uniform leaves an
    algorithm's own as they are."""
    if kind == "uniform":
        return network
    return replace(network, rho=sample_weights(network.tree, shard_sizes))


def joined_by_chance(network: Network, config: TrainingConfig) -> Network:
    """The network with devices that join by chance, or updates weighed, as configured or planned;
    every device weighs 1."""
    if config.participation is None and config.estimator == "mean":
        return network
    caps = np.ones(network.tree.n_devices)
    least_weight = config.least_weight if config.estimator == "clipped" else None
    planned = 1.0 if network.participation is None else network.participation.rate
    participation = Participation(config.participation or planned, caps, least_weight)
    return replace(network, participation=participation)


def sample_weights(tree: Tree, shard_sizes: np.ndarray) -> tuple[np.ndarray, ...]:
    """rho by sample count: each node's part of its parent's records; layers and shapes as `rho`."""
    records: np.ndarray = np.asarray(shard_sizes, dtype=np.float64)
    result = []
    for parents in reversed(tree.parents):
        of_parent = np.bincount(parents, weights=records)
        result.append(records / of_parent[parents])
        records = of_parent
    return tuple(reversed(result))


def noise_plan(tree: Tree, trust: Trust) -> tuple[np.ndarray, ...]:
    """Which messages carry fresh noise (J eqs 9, 13): `Network.noise` of zeros and ones.

    The message of node i to its parent c is noised iff c is untrusted and i is a device or a
    trusted server. The cloud adds noise to what it broadcasts iff it is trusted itself.
    """
    plan = [trust[0].astype(np.float64)]
    for layer, parents in enumerate(tree.parents, start=1):
        sender_noises = np.True_ if layer == tree.depth else trust[layer]
        plan.append((~trust[layer - 1][parents] & sender_noises).astype(np.float64))
    return tuple(plan)


def no_noise(tree: Tree) -> tuple[np.ndarray, ...]:
    """The plan in which nobody adds noise."""
    return tuple(np.zeros(tree.n_nodes(layer)) for layer in range(tree.depth + 1))


def heads_of(network: Network) -> np.ndarray:
    """The node whose noise protects each device first, its head: int64 (N_L, 2).

    Row j is (layer, index) of the last node that adds noise on the way up from device j to the
    first untrusted server. Noise added further up protects only from readers further up. Where all
    servers up to the cloud are trusted, its broadcast gets out, so the cloud may be a head. Where
    nobody adds noise, the device counts as its own head (see `exposed_devices`).
    """
    tree = network.tree
    devices = np.arange(tree.n_devices)
    result = np.stack([np.full_like(devices, tree.depth), devices], axis=1)
    is_trusted = np.ones(tree.n_devices, dtype=bool)
    for layer in range(tree.depth, -1, -1):
        node = tree.ancestors[layer]
        adds = is_trusted & (network.noise[layer][node] > 0)
        result[adds, 0] = layer
        result[adds, 1] = node[adds]
        if layer > 0:
            is_trusted &= network.trust[layer - 1][tree.ancestors[layer - 1]]
    return result


def exposed_devices(network: Network) -> np.ndarray:
    """Whether what an untrusted server receives first of a device is in clear: bool (N_L,)."""
    layers, nodes = heads_of(network).T
    exposed = np.zeros(network.tree.n_devices, dtype=bool)
    for layer, noise in enumerate(network.noise):
        in_layer = layers == layer
        exposed[in_layer] = noise[nodes[in_layer]] == 0
    return exposed


def check_network(algorithm: str, network: Network) -> None:
    """What an algorithm's network must be.

    Raises:
        InputError: noise or weights that are none of this tree, or a trusted server other than the
            cloud above an untrusted one.
    """
    refuse = partial(InputError, "algorithm", algorithm)
    sizes = [network.tree.n_nodes(layer) for layer in range(network.tree.depth + 1)]
    if [np.shape(of_layer) for of_layer in network.noise] != [(size,) for size in sizes]:
        nodes = f"{' + '.join(map(str, sizes))} nodes of layers 0 to {network.tree.depth}"
        raise refuse(f"needs noise for each of the {nodes}")
    if not all((np.isfinite(part) & (part >= 0)).all() for part in network.noise):
        raise refuse("has parts of noise that are not 0 or more")
    for layer in range(2, network.tree.depth):
        parents = network.tree.parents[layer - 1]
        if (network.trust[layer - 1][parents] & ~network.trust[layer]).any():
            raise refuse(
                f"trusts a server of layer {layer - 1} that has an untrusted child (J eq. 4); only "
                "the cloud may be trusted above untrusted servers"
            )
    if network.rho is not None and not _sum_to_one(network.tree, network.rho):
        raise refuse("has siblings whose weights do not sum to one")


def _sum_to_one(tree: Tree, rho: Sequence[np.ndarray]) -> bool:
    if [len(of_layer) for of_layer in rho] != [len(parents) for parents in tree.parents]:
        return False
    return all(
        np.allclose(np.bincount(parents, weights=of_layer), 1.0) and (of_layer > 0).all()
        for parents, of_layer in zip(tree.parents, rho, strict=True)
    )
