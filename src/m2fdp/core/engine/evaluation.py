"""How good a global model is on the cloud's records."""

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
    """Evaluate the parameters (M,) on features (R, C, H, W) with labels (R,).

    Args:
        workers: processes that share the records; the result is the same.
        metrics: the user's own (`m2fdp.core.metrics.own_metrics`).

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
    for start in range(part.start, part.stop, _RECORDS_AT_A_TIME):
        rows = slice(start, min(start + _RECORDS_AT_A_TIME, part.stop))
        scores[rows] = model.scores(weights, features[rows])


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, n_classes: int) -> pd.DataFrame:
    """The number of records of each true label (rows) and predicted label (columns)."""
    classes = pd.RangeIndex(n_classes)
    counts = np.bincount(labels * n_classes + predicted, minlength=n_classes**2)
    return pd.DataFrame(counts.reshape(n_classes, -1), classes.rename("label"), classes)


def one_class_only(counts: np.ndarray) -> str | None:
    """A warning, if a model answers one class only and some record is of another; counts are those
    of `confusion_matrix`, int64 (C, C)."""
    (answered,), of_class = counts.sum(axis=0).nonzero(), counts.sum(axis=1)
    if len(answered) > 1 or np.count_nonzero(of_class) == 1:
        return None
    share = float(of_class[answered[0]] / of_class.sum())
    return f"one class only, {answered[0]}: its accuracy is the share of that class, {share:.3f}"
