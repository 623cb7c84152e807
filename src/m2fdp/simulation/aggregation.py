"""Aggregation up the tree (J eqs 8, 9, 13): weighted sums of what children send.

Where the weights of those who send do not sum to one, updates are aggregated instead of models:
theta + sum of rho_k (model_k - theta), with the model theta that the parent last handed to all
below it. That is the weighted sum of models plus the weight that is missing, times theta; and of
a child that sends nothing the update is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from m2fdp.privacy.mechanisms import LockStep
from m2fdp.topology.network import Network
from m2fdp.topology.tree import Tree

# Called with a layer l and the messages (N_l, M) of its nodes, which it noises in place.
Send = Callable[[int, Tensor], None]


@dataclass(frozen=True, eq=False)
class References:
    """The model that every server last handed to all below it: what their updates are counted from.

    Attributes:
        tree: of the servers.
        handed: for layer l = 0…L-1, a layer from which models last travelled down through l, and
            its models (N, M).
    """

    tree: Tree
    handed: tuple[tuple[int, Tensor], ...]

    def of(self, layer: int) -> Tensor:
        """The models (N_l, M) of the servers of a layer."""
        source, models = self.handed[layer]
        if source == layer:
            return models
        ancestors = self.tree.ancestors_of(layer, source)
        return models[torch.as_tensor(ancestors, device=models.device)]

    def after(self, layer: int, models: Tensor) -> References:
        """Once the servers of a layer have handed down their models (N_l, M)."""
        below = ((layer, models),) * (len(self.handed) - layer)
        return replace(self, handed=(*self.handed[:layer], *below))


def first_references(tree: Tree, model: Tensor) -> References:
    """Everybody has the global model (M,)."""
    return References(tree, ((0, model[None]),) * tree.depth)


@dataclass(frozen=True, eq=False)
class Updates:
    """That updates are aggregated, not models.

    Attributes:
        references: what they are counted from.
        missing: for layer l = 0…L-1, (N_l, 1), by how much the weights of those who send to each
            server are short of one; None where they never are.
        arrived: for some layers, (N_l, M), updates of their models that came another way.
    """

    references: References
    missing: tuple[Tensor | None, ...]
    arrived: dict[int, Tensor] = field(default_factory=dict)

    def complete(self, sums: dict[int, Tensor], layer: int) -> None:
        """Make the sums (N_l, M) of a layer, of models that were sent, its models, in place."""
        missing = self.missing[layer]
        if missing is not None:
            sums[layer].addcmul_(missing, self.references.of(layer))
        if layer in self.arrived:
            sums[layer].add_(self.arrived[layer])


def missing_weights(network: Network, layer: int, sends: np.ndarray) -> np.ndarray:
    """By how much the weights of those nodes of a layer that send are short of one: float64
    (N_{layer-1},), for each parent; below zero where they are more.

    Args:
        sends: bool (N_layer,).
    """
    parents = network.tree.parents[layer - 1]
    return 1.0 - np.bincount(parents, weights=network.weights[layer - 1] * sends)


def all_missing(
    network: Network,
    lock_step: LockStep,
    present: np.ndarray,
    layers: Collection[int],
    like: Tensor,
) -> tuple[Tensor | None, ...]:
    """`Updates.missing`: who does not come, or falls silent, is missed by the server that it sends
    to, unless it steps together with it.

    Args:
        present: bool (N_L,), the devices that take part in the round.
        layers: of the nodes who may be missing.
    """
    tree = network.tree
    group_layers = lock_step.nodes[lock_step.group_of, 0]

    def of_parents(layer: int) -> Tensor:
        sends = present if layer == tree.depth else np.ones(tree.n_nodes(layer), dtype=bool)
        missing = missing_weights(network, layer, sends)
        missing[tree.ancestors[layer - 1][group_layers < layer]] = 0.0
        return torch.as_tensor(missing, dtype=like.dtype, device=like.device)[:, None]

    return tuple(
        of_parents(layer) if layer in layers else None for layer in range(1, tree.depth + 1)
    )


@dataclass(frozen=True, eq=False)
class Aggregator:
    """The tree as tensors.

    Attributes:
        sizes: for layer l = 0…L, N_l.
        parents: for layer l = 1…L, int64 (N_l,).
        weights: for layer l = 1…L, (N_l, 1), rho.
    """

    sizes: tuple[int, ...]
    parents: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]

    def nothing_received(self, top: int, n_parameters: int) -> dict[int, Tensor]:
        """Zeros (N_l, M) for each layer l = top…L-1: the sums before any message is there."""
        weights = self.weights[0]
        return {
            layer: weights.new_zeros(self.sizes[layer], n_parameters)
            for layer in range(top, len(self.parents))
        }

    def receive(self, sums: dict[int, Tensor], layer: int, nodes: Tensor, messages: Tensor) -> None:
        """Add what some nodes int64 (n,) of a layer send, (n, M), to their parents' sums.

        The messages are weighted in place: fresh memory would cost more than the sums.
        """
        messages.mul_(self.weights[layer - 1][nodes])
        sums[layer - 1].index_add_(0, self.parents[layer - 1][nodes], messages)

    def climb(
        self,
        sums: dict[int, Tensor],
        top: int,
        send: Send | None = None,
        updates: Updates | None = None,
    ) -> Tensor:
        """The models (N_top, M) of layer `top`, once all that enters the tree is in `sums`.

        What servers send is noised, and heard, by `send`, if it is given.

        Args:
            updates: what completes the sums, where weights do not sum to one.
        """
        if updates is not None:
            updates.complete(sums, len(self.parents) - 1)
        for layer in range(len(self.parents) - 1, top, -1):
            if send is not None:
                send(layer, sums[layer])
            everyone = torch.arange(self.sizes[layer], device=sums[layer].device)
            self.receive(sums, layer, everyone, sums[layer].clone())
            if updates is not None:
                updates.complete(sums, layer - 1)
        return sums[top]


def build_aggregator(
    network: Network, dtype: torch.dtype, device: torch.device, blocks: np.ndarray | None = None
) -> Aggregator:
    """The network's aggregator.

    Args:
        blocks: int64 (N_1,), the sum at the cloud that each node of layer 1 is added to; None = one
            sum of all.
    """
    tree = network.tree

    def indices(array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, dtype=torch.int64, device=device)

    to_cloud = tree.parents[0] if blocks is None else blocks
    servers = (tree.n_nodes(layer) for layer in range(1, tree.depth + 1))
    return Aggregator(
        (int(to_cloud.max()) + 1, *servers),
        tuple(indices(parents) for parents in (to_cloud, *tree.parents[1:])),
        tuple(
            torch.as_tensor(weights, dtype=dtype, device=device)[:, None]
            for weights in network.weights
        ),
    )
