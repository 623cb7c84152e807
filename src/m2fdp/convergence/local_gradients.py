"""The devices' losses and gradients at a model: a diagnostic of the simulation, never a release."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.models.registry import Model

_GRADIENTS_AT_A_TIME = 256


@dataclass(frozen=True, eq=False)
class LocalGradients:
    """The devices' losses and their gradients at one model, over whole shards and unclipped.

    Attributes:
        losses: float64 (N_L,), F_j.
        gradients: (N_L, M), grad F_j.
        mean_squares: float64 (N_L,), the mean over device j's records of the squared norm of
            the record's own gradient.
    """

    losses: Tensor
    gradients: Tensor
    mean_squares: Tensor


def local_gradients(
    model: Model, weights: Tensor, features: Tensor, labels: Tensor, sizes: np.ndarray
) -> LocalGradients:
    """Evaluate every F_j (J eq. 5) and its gradient at the parameters (M,).

    Args:
        features: (R, C, H, W), all training records' in device order.
        labels: theirs, (R,).
        sizes: int64 (N_L,), D_j.
    """

    losses = torch.zeros(len(sizes), dtype=torch.float64)
    gradients = weights.new_zeros(len(sizes), len(weights))
    mean_squares = torch.zeros(len(sizes), dtype=torch.float64)
    start = 0
    for device, size in enumerate(sizes.tolist()):
        for part in torch.arange(start, start + size).split(_GRADIENTS_AT_A_TIME):
            scores = model.scores(weights, features[part]).detach().requires_grad_()
            values = model.loss(scores, labels[part])
            (errors,) = torch.autograd.grad(values.sum(), scores)
            total, squares = _back_propagated(model, weights, features[part], errors)
            losses[device] += values.double().sum().item() / size
            gradients[device] += total / size
            mean_squares[device] += squares.double().sum().item() / size
        start += size
    return LocalGradients(losses, gradients, mean_squares)


def _back_propagated(
    model: Model, weights: Tensor, features: Tensor, errors: Tensor
) -> tuple[Tensor, Tensor]:
    """The sum (M,) of the records' gradients and their squared norms (B,).

    Args:
        errors: (B, classes), the losses' gradients by the scores; losses themselves need not be
            vectorisable.
    """
    if model.linear:
        flat = features.flatten(1)
        return (errors.T @ flat).flatten(), errors.square().sum(1) * flat.square().sum(1)

    def product(vector: Tensor, image: Tensor, error: Tensor) -> Tensor:
        return model.scores(vector, image[None])[0] @ error

    per_record = torch.func.vmap(torch.func.grad(product), in_dims=(None, 0, 0))
    gradients = per_record(weights, features, errors)
    return gradients.sum(dim=0), gradients.square().sum(dim=1)
