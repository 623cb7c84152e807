"""D's means against model inversion from activations (D Sec. 4.4). Neither promises an epsilon."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Of a batch whose images, or whose activations, are all alike.
_TINY = 1e-12


def distance_correlation(images: Tensor, sent: Tensor) -> Tensor:
    """How far activations tell images apart that differ: in [0, 1], 1 for the images themselves.

    Szekely et al. 2007, of the batch, with distances that are Euclidean; D's code centres their
    squares, which is another measure.

    Args:
        images: (B, …).
        sent: (B, …).
    """
    a, b = (_centred(values.flatten(1)) for values in (images, sent))
    norms = ((a * a).sum() * (b * b).sum()).sqrt()
    return ((a * b).sum() / norms.clamp_min(_TINY)).clamp_min(_TINY).sqrt()


def shuffle_places(sent: Tensor, draws: np.random.Generator) -> Tensor:
    """Activations (B, C, H, W) with the places of every record in an order of its own."""
    flat = sent.flatten(2)
    records, _, places = flat.shape
    order = torch.as_tensor(draws.random((records, places)).argsort(1), device=sent.device)
    return flat.gather(2, order[:, None].expand_as(flat)).view_as(sent)


def _centred(vectors: Tensor) -> Tensor:
    """The distances (B, B) of vectors (B, n), less the means of rows and columns."""
    distances = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
    rows, columns = distances.mean(1, keepdim=True), distances.mean(0, keepdim=True)
    return distances - rows - columns + distances.mean()
