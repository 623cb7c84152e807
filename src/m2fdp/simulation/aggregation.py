"""Aggregation up the tree (J eqs 8, 9, 13): weighted sums of what children send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m2fdp.simulation.process import Tap
from m2fdp.topology.network import Network

# Called with a layer l and the messages (N_l, M) of its nodes, which it noises in place.
AddNoise = Callable[[int, Tensor], None]


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
        add_noise: AddNoise | None = None,
        tap: Tap | None = None,
    ) -> Tensor:
        """The models (N_top, M) of layer `top`, once all that enters the tree is in `sums`.

        Messages between servers are noised by `add_noise`, if it is given; `tap` sees them.
        """
        for layer in range(len(self.parents) - 1, top, -1):
            if add_noise is not None:
                add_noise(layer, sums[layer])
            if tap is not None:
                tap("up", layer, sums[layer])
            everyone = torch.arange(self.sizes[layer], device=sums[layer].device)
            self.receive(sums, layer, everyone, sums[layer].clone())
        return sums[top]


def build_aggregator(network: Network, dtype: torch.dtype, device: torch.device) -> Aggregator:
    """The network's aggregator."""
    tree = network.tree

    def indices(array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, dtype=torch.int64, device=device)

    return Aggregator(
        tuple(tree.n_nodes(layer) for layer in range(tree.depth + 1)),
        tuple(indices(parents) for parents in tree.parents),
        tuple(
            torch.as_tensor(weights, dtype=dtype, device=device)[:, None]
            for weights in network.weights
        ),
    )
