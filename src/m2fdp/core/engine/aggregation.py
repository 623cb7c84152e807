"""Aggregation up the tree (J eqs 8, 9, 13): weighted sums of what children send.

Where the weights of those who send do not sum to one, updates are aggregated instead of models:
theta + sum of rho_k (model_k - theta), with the model theta that the parent last handed to all
below it. That is the weighted sum of models plus the weight that is missing, times theta; and of
a child that sends nothing the update is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.server_sums import weighed_sum
from m2fdp.core.privacy.mechanisms import LockStep
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.tree import Tree

# Called with a layer l and the messages (N_l, M) of its nodes, which it noises in place.
Send = Callable[[int, Tensor], None]
# (N_l, 1), for layer l = 0…L-1: see `Updates`.
Shortfalls = tuple[Tensor | None, ...]


@dataclass(frozen=True, eq=False)
class References:
    """The model that every server last handed to all below it: what their updates are counted from.

    Attributes:
        tree: the servers' tree.
        handed: a layer from which models last travelled down through layer l = 0…L-1, and its
            models (N, M).
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
        handed_down = ((layer, models),) * (len(self.handed) - layer)
        return replace(self, handed=(*self.handed[:layer], *handed_down))


@dataclass(frozen=True, eq=False)
class Updates:
    """That updates are aggregated, not models.

    Attributes:
        references: what they are counted from.
        shortfalls: (N_l, 1), for layer l = 0…L-1: what the weights of those who send to each
            server lack of one; None where they never lack any.
        arrived: {layer l: updates (N_l, M) of its models that came another way}.
    """

    references: References
    shortfalls: Shortfalls
    arrived: dict[int, Tensor] = field(default_factory=dict)

    def complete(self, sums: dict[int, Tensor], layer: int) -> None:
        """Make the sums (N_l, M) of a layer, of models that were sent, its models, in place."""
        shortfall = self.shortfalls[layer]
        if shortfall is not None:
            sums[layer].addcmul_(shortfall, self.references.of(layer))
        if layer in self.arrived:
            sums[layer].add_(self.arrived[layer])


def shortfalls(
    network: Network,
    lock_step: LockStep,
    present: np.ndarray,
    by_chance: bool,
    alive: Mapping[int, np.ndarray],
    features: Tensor,
) -> Shortfalls | None:
    """`Updates.shortfalls`: who does not come, or falls silent, is missed by the server that it
    sends to, unless it steps together with it; None where all come. They are below zero where
    weights are more than one.

    Args:
        present: bool (N_L,), the devices that take part in the round.
        by_chance: whether they come by chance.
        alive: who is left, by layer, where some may fall silent in sums.
        features: whose type and device they have.
    """
    tree = network.tree
    layers = set(network.sums.layers if alive else ())
    if by_chance:
        layers.add(tree.depth)
    if not layers:
        return None
    group_layers = lock_step.nodes[lock_step.group_of, 0]

    def of_parents(layer: int) -> Tensor:
        sends = present if layer == tree.depth else np.ones(tree.n_nodes(layer), dtype=bool)
        weights = network.weights[layer - 1] * sends
        result = 1.0 - np.bincount(tree.parents[layer - 1], weights=weights)
        result[tree.ancestors[layer - 1][group_layers < layer]] = 0.0
        return torch.as_tensor(result).to(features)[:, None]

    return tuple(
        of_parents(layer) if layer in layers else None for layer in range(1, tree.depth + 1)
    )


@dataclass(frozen=True, eq=False)
class Aggregator:
    """The tree as tensors.

    Attributes:
        sizes: N_l, l = 0…L.
        parents: int64 (N_l,), l = 1…L.
        weights: rho, (N_l, 1), l = 1…L.
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

        The messages are weighed in place.
        """
        weights, parents = self.weights[layer - 1][nodes], self.parents[layer - 1][nodes]
        weighed_sum(sums[layer - 1], messages, weights, parents)

    def climb(
        self,
        sums: dict[int, Tensor],
        top: int,
        send: Send | None = None,
        updates: Updates | None = None,
    ) -> Tensor:
        """The models (N_top, M) of layer `top`, once all that enters the tree is in `sums`.

        What servers send is noised, and heard, by `send`, if it is given; `updates` complete the
        sums where weights do not sum to one.
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


def build_aggregator(network: Network, features: Tensor, blocks: np.ndarray) -> Aggregator:
    """The network's aggregator, with weights of the type of features, and where they are.

    Args:
        blocks: int64 (N_1,), the sum at the cloud that each node of layer 1 is added to.
    """
    tree, device = network.tree, features.device
    servers = (tree.n_nodes(layer) for layer in range(1, tree.depth + 1))
    return Aggregator(
        (int(blocks.max()) + 1, *servers),
        tuple(
            torch.as_tensor(parents, dtype=torch.int64, device=device)
            for parents in (blocks, *tree.parents[1:])
        ),
        tuple(torch.as_tensor(weights).to(features)[:, None] for weights in network.weights),
    )
