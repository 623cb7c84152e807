"""How good a global model is: on the cloud's records, and to every device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2fdp.core.engine.simulation import Alone, Workers
from m2fdp.core.metrics import Metric, own_values
from m2fdp.core.models.registry import Model

_RECORDS_AT_A_TIME = 512
_GRADIENTS_AT_A_TIME = 256


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracy, mean loss, the predicted labels int64 (R,), and the user's own metrics by name."""

    accuracy: float
    loss: float
    predictions: Tensor
    own: Mapping[str, float] = field(default_factory=dict)


def evaluate(
    model: Model,
    weights: Tensor,
    features: Tensor,
    labels: Tensor,
    workers: Workers | None = None,
    metrics: Mapping[str, Metric] | None = None,
) -> Evaluation:
    """Evaluate the parameters (M,) on features (R, C, H, W) with labels (R,), which workers may
    share with the same result.

    Args:
        metrics: the user's own, of `m2fdp.core.metrics.own_metrics`; None = none.

    Raises:
        InputError: one of these metrics fails, or makes no finite number.
    """
    workers = workers or Alone()
    n_classes = model.scores(weights, features[:1]).shape[1]
    scores = workers.room("scores", len(labels), n_classes, weights.dtype)
    score = partial(_score, model, weights, features, scores)
    fixed = (model, features, scores)
    workers.share("scores", np.ones(len(labels)), score, _RECORDS_AT_A_TIME, fixed)
    labels, predicted = labels.cpu(), scores.argmax(dim=1)
    accuracy = float((predicted == labels).double().mean())
    losses = model.loss(scores, labels)
    loss, own = float(losses.double().mean()), {}
    if metrics and math.isfinite(loss):  # a model that is made of no numbers has none
        own = own_values(metrics, labels.numpy(), scores.numpy(), losses.numpy())
    return Evaluation(accuracy, loss, predicted, own)


@torch.no_grad()
def _score(model: Model, weights: Tensor, features: Tensor, scores: Tensor, part: range) -> None:
    """The scores (R, C) of some of the records, in place."""
    for start in range(part.start, part.stop, _RECORDS_AT_A_TIME):
        rows = slice(start, min(start + _RECORDS_AT_A_TIME, part.stop))
        scores[rows] = model.scores(weights, features[rows])


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, n_classes: int) -> pd.DataFrame:
    """How many records there are of each true label (rows) and each predicted one (columns).

    Args:
        labels: int64 (R,).
        predicted: int64 (R,).
    """
    counts = np.bincount(labels * n_classes + predicted, minlength=n_classes**2)
    counts, classes = counts.reshape(n_classes, n_classes), pd.RangeIndex(n_classes)
    return pd.DataFrame(counts, index=classes.rename("label"), columns=classes)


def one_class_only(counts: np.ndarray) -> str | None:
    """What a model answers that answers one class whatever it is shown, in words; None where it
    tells classes apart, or no record is of another.

    Args:
        counts: int64 (C, C), the values of `confusion_matrix`.
    """
    (answered,), of_class = counts.sum(axis=0).nonzero(), counts.sum(axis=1)
    if len(answered) > 1 or np.count_nonzero(of_class) == 1:
        return None
    share = float(of_class[answered[0]] / of_class.sum())
    return f"one class only, {answered[0]}: its accuracy is the share of that class, {share:.3f}"


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
