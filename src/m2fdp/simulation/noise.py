"""Keyed Gaussian noise: one vector a message, or one for all messages that only feed a sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from m2fdp.streams import torch_generator
from m2fdp.topology.network import Network


def standard_normal(like: Tensor, seed: int, purpose: str, *indices: int) -> Tensor:
    """A standard normal vector (M,), like the rows of `like` (…, M), keyed by its use."""
    stream = torch_generator(seed, purpose, *indices, device=like.device)
    drawn = torch.randn(like.shape[-1], generator=stream, device=like.device)
    return drawn.to(like.dtype)


def summed_deviations(
    network: Network, present: np.ndarray, deviations: Sequence[np.ndarray], top: int
) -> np.ndarray:
    """The standard deviation of the noise in each model of layer `top`: float64 (N_top,).

    Independent noises that nobody sees one by one only ever feed their sum, whose law is that
    of one Gaussian with the summed variance.

    Args:
        present: bool (N_L,), the devices that send.
        deviations: for layer l = 1…L, (N_l,), of the noise that each node adds to its message.
    """
    tree = network.tree
    variance = np.zeros(tree.n_devices)
    sent = present
    for layer in range(tree.depth, top, -1):
        messages = sent * (variance + deviations[layer - 1] ** 2)
        variance = np.bincount(
            tree.parents[layer - 1],
            weights=network.weights[layer - 1] ** 2 * messages,
            minlength=tree.n_nodes(layer - 1),
        )
        sent = np.ones_like(variance)
    return np.sqrt(variance)
