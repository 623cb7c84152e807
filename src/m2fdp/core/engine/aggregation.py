"""Aggregation up the tree (J eqs 8, 9, 13): weighted sums of what children send."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.topology.network import Network


@dataclass(frozen=True, eq=False)
class Aggregator:
    """The tree as tensors: N_l of layers l = 0…L; parents int64 (N_l,) and weights rho (N_l, 1) of
    layers l = 1…L."""

    sizes: tuple[int, ...]
    parents: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]

    def nothing_received(self, top: int, n_parameters: int) -> dict[int, Tensor]:
        """Sums before any message: zeros (N_l, M) for each layer l = top…L-1."""
        layers = range(top, len(self.parents))
        return {of: self.weights[0].new_zeros(self.sizes[of], n_parameters) for of in layers}

    def receive(self, sums: dict[int, Tensor], layer: int, nodes: Tensor, messages: Tensor) -> None:
        """Weigh messages (n, M) of nodes int64 (n,) of a layer and add them to parents' sums."""
        weights, parents = self.weights[layer - 1][nodes], self.parents[layer - 1][nodes]
        weighed_sum(sums[layer - 1], messages, weights, parents)


def build_aggregator(network: Network, features: Tensor, blocks: np.ndarray) -> Aggregator:
    """The network's aggregator, on the device of features and of their type. The cloud has a sum
    for each of the blocks that nodes of layer 1 belong to, int64 (N_1,)."""
    tree, device = network.tree, features.device
    all_parents = (blocks, *tree.parents[1:])
    return Aggregator(
        (int(blocks.max()) + 1, *(tree.n_nodes(layer) for layer in range(1, tree.depth + 1))),
        tuple(torch.as_tensor(of, dtype=torch.int64, device=device) for of in all_parents),
        tuple(torch.as_tensor(weights).to(features)[:, None] for weights in network.weights),
    )


def summed_noise(
    mechanism: Protection,
    steps: np.ndarray | None,
    weighing: Network,
    present: np.ndarray,
    top: int,
) -> np.ndarray:
    """Deviations float64 (N_top,) of all noise below each model of layer `top`.

    Nobody sees these independent noises one by one, so their sum is drawn as one Gaussian.

    Args:
        steps: the last step's, float64 (G,); None = models have it already.
        present: bool (N_L,), the devices that send messages.
    """
    lock_step = mechanism.lock_step
    steps = np.zeros(len(lock_step.nodes)) if steps is None else steps
    deviations = [scales.copy() for scales in mechanism.noise.sent(top)]
    for layer in range(top + 1, len(deviations)):
        in_layer = lock_step.nodes[:, 0] == layer
        nodes, of_layer = lock_step.nodes[in_layer, 1], deviations[layer]
        of_layer[nodes] = np.hypot(of_layer[nodes], steps[in_layer])
    return np.sqrt(mean_variances(weighing, deviations, present, top)[0])


def weighed_sum(
    sums: Tensor, messages: Tensor, weights: Tensor | None = None, parents: Tensor | None = None
) -> None:
    """Add messages (n, M), in the tree's order, to the sums (N, M) of their parents, in place.

    They are added one after the other, so calls with single messages, in order, give equal bytes.

    Args:
        weights: (n, 1), factors that messages are multiplied by in place; None = done already.
        parents: int64 (n,), the sum of each message; None = the first.
    """
    if weights is not None:
        messages.mul_(weights)
    if parents is None:
        parents = messages.new_zeros(len(messages), dtype=torch.int64)
    sums.index_add_(0, parents, messages)
