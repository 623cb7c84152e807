"""How good a global model is on records that the cloud holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from m2fdp.models.registry import Model

_RECORDS_AT_A_TIME = 2048


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracy, mean loss, and the predicted labels int64 (R,)."""

    accuracy: float
    loss: float
    predictions: Tensor


@torch.no_grad()
def evaluate(model: Model, weights: Tensor, features: Tensor, labels: Tensor) -> Evaluation:
    """Evaluate the parameters (M,) on features (R, C, H, W) with labels (R,)."""
    predictions, total = [], 0.0
    for start in range(0, len(labels), _RECORDS_AT_A_TIME):
        part = slice(start, start + _RECORDS_AT_A_TIME)
        scores = model.scores(weights, features[part])
        predictions.append(scores.argmax(dim=1))
        total += float(model.loss(scores, labels[part]).double().sum())
    predicted = torch.cat(predictions)
    accuracy = float((predicted == labels).double().mean())
    return Evaluation(accuracy, total / len(labels), predicted)
