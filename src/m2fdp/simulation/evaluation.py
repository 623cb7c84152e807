"""How good a global model is on records that the cloud holds."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from m2fdp.models.registry import Model
from m2fdp.simulation.workers import Workers, build_workers

_RECORDS_AT_A_TIME = 512


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracy, mean loss, and the predicted labels int64 (R,)."""

    accuracy: float
    loss: float
    predictions: Tensor


def evaluate(
    model: Model,
    weights: Tensor,
    features: Tensor,
    labels: Tensor,
    workers: Workers | None = None,
) -> Evaluation:
    """Evaluate the parameters (M,) on features (R, C, H, W) with labels (R,).

    Args:
        workers: evaluate parts side by side; the result is the same.
    """

    @torch.no_grad()
    def part(start: int) -> tuple[Tensor, float]:
        rows = slice(start, start + _RECORDS_AT_A_TIME)
        # A module of its own: its parameters are replaced while it is called.
        own = replace(model, module=copy.deepcopy(model.module))
        scores = own.scores(weights, features[rows])
        return scores.argmax(dim=1), float(own.loss(scores, labels[rows]).double().sum())

    starts = range(0, len(labels), _RECORDS_AT_A_TIME)
    predictions, losses = zip(*(workers or build_workers(1)).map(part, starts), strict=True)
    predicted = torch.cat(predictions)
    accuracy = float((predicted == labels).double().mean())
    return Evaluation(accuracy, sum(losses) / len(labels), predicted)
