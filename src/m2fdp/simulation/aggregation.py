"""Aggregation up the tree (J eqs 8, 9, 13) and broadcast down (eq. 12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from m2fdp.topology.network import Network

# Noise for the messages of one layer: layer -> {node index: noise (M,)}.
MessageNoise = Callable[[int], dict[int, Tensor]]
# Called with what travels, for somebody who listens: the direction, the layer l of the senders,
# and the models (N_l, M) as they are sent.
Tap = Callable[[Literal["up", "down"], int, Tensor], None]


@dataclass(frozen=True, eq=False)
class Aggregator:
    """The tree as tensors.

    Attributes:
        sizes: for layer l = 0…L, N_l.
        parents: for layer l = 1…L, int64 (N_l,).
        weights: for layer l = 1…L, (N_l, 1), rho.
        ancestors: for layer l = 0…L, int64 (N_L,), each device's ancestor.
        copies: for layer l = 1…L, the parents whose children step in lock step, and one child
            of each. All their models are equal, so a copy is the average without rounding.
    """

    sizes: tuple[int, ...]
    parents: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    ancestors: tuple[Tensor, ...]
    copies: tuple[tuple[Tensor, Tensor], ...]

    def aggregate(
        self,
        models: Tensor,
        present: Tensor,
        top: int,
        noise: MessageNoise,
        tap: Tap | None = None,
    ) -> Tensor:
        """The models (N_top, M) of layer `top` from those of the devices (N_L, M).

        Only devices that are `present`, 1 or 0 (N_L, 1), count. Every message that travels
        carries the noise that `noise` has for it; `tap` sees them.
        """
        for layer in range(len(self.parents), top, -1):
            drawn = noise(layer)
            if drawn:
                models = models.clone()
                for node, value in drawn.items():
                    models[node] += value
            if tap is not None:
                tap("up", layer, models)
            above = models.new_zeros(self.sizes[layer - 1], models.shape[1])
            weights = self.weights[layer - 1]
            if layer == len(self.parents):
                weights = weights * present
            above.index_add_(0, self.parents[layer - 1], models * weights)
            copied, representatives = self.copies[layer - 1]
            above[copied] = models[representatives]
            models = above
        return models

    def broadcast(self, models: Tensor, layer: int) -> Tensor:
        """Every device takes the model (N_l, M) of its ancestor at the layer: (N_L, M)."""
        return models[self.ancestors[layer]]


def build_aggregator(
    network: Network, lock_step: bool, dtype: torch.dtype, device: torch.device
) -> Aggregator:
    """The network's aggregator; `lock_step` where trusted servers and their devices are one."""
    tree = network.tree

    def indices(array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, dtype=torch.int64, device=device)

    copies = []
    for layer, parents in enumerate(tree.parents, start=1):
        trusted = network.trust[layer - 1] if lock_step else np.zeros(tree.n_nodes(layer - 1), bool)
        copied = np.flatnonzero(trusted)
        copies.append((indices(copied), indices(np.searchsorted(parents, copied))))
    return Aggregator(
        tuple(tree.n_nodes(layer) for layer in range(tree.depth + 1)),
        tuple(indices(parents) for parents in tree.parents),
        tuple(
            torch.as_tensor(weights, dtype=dtype, device=device)[:, None]
            for weights in network.weights
        ),
        tuple(indices(ancestor) for ancestor in tree.ancestors),
        tuple(copies),
    )
