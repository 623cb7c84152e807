"""A number to learn: models, losses and metrics of labels that are no classes.

A label x in the public range [low, high] is y = 2 (x - low) / (high - low) - 1, in [-1, 1]. A model
answers on this scale with one score s. Both ends come from the schema; no mean and
no deviation of records does.

Nothing is released that is not released of classes: a label enters through its record's gradient
alone, which is clipped whatever the label is. So epsilon and the ledger's lines stay the same.
"""

from collections.abc import Callable
from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from m2fdp.core.config import ModelConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.facts import OF_CLASSES
from m2fdp.core.metrics import Metric
from m2fdp.core.models.checks import KEY, Shape

if TYPE_CHECKING:  # a configuration is checked without torch
    from torch import Tensor

    from m2fdp.core.models.registry import Model

LINEAR, LOSSES, MEASURES = "linear", ("squared", "huber"), ("mae", "rmse", "r2")


def of_numbers(config: ModelConfig) -> bool:
    """Whether a model is for labels that are numbers: by its name, or by its loss."""
    return config.name == LINEAR or config.loss in LOSSES


def check_labels(config: ModelConfig, dataset: Dataset) -> None:
    """Refuse a model of classes where labels are numbers, and the other way round.

    Raises:
        InputError: it names the model.
    """
    text = "is for classes, and the labels are numbers; use linear, or model.loss: squared"
    if of_numbers(config):
        text = f"is for numbers, and the labels are {dataset.n_classes} classes; use softmax"
        text += ", or model.loss: null" if config.loss in LOSSES else ""
    if of_numbers(config) != (dataset.label_range is not None):
        raise InputError(KEY, config.name, text)


# fmt: off
FACTS = (replace(OF_CLASSES, key=KEY, remedy="one such as softmax",
    holds=lambda run: not of_numbers(run.config.model)),)
# fmt: on


# Losses take scores (B, 1) and labels (B,), derivatives scores (..., 1, b) and labels (..., b).


def squared(scores: "Tensor", labels: "Tensor") -> "Tensor":
    """(s - y)^2 / 2: (B,)."""
    return (scores[..., 0] - labels) ** 2 / 2


def squared_gradient(scores: "Tensor", labels: "Tensor") -> "Tensor":
    """s - y, the derivative of `squared` in the score."""
    return scores - labels[..., None, :]


def huber(scores: "Tensor", labels: "Tensor") -> "Tensor":
    """Huber's (1964) with delta = 1, (B,): `squared` up to an error of delta, linear beyond."""
    errors = (scores[..., 0] - labels).abs()
    near = errors.clamp(max=1)
    return near**2 / 2 + (errors - near)


def huber_gradient(scores: "Tensor", labels: "Tensor") -> "Tensor":
    """s - y, at most 1 and at least -1: the derivative of `huber` in the score."""
    return squared_gradient(scores, labels).clamp(-1, 1)


def with_squared(model: "Model") -> "Model":
    """The model with the squared loss, whose second derivative in the score is 1."""
    by, slope = 1.0 if model.linear else None, squared_gradient
    return replace(model, loss=squared, loss_gradient=slope, curvature=by, curvature_sum=by)


def with_huber(model: "Model") -> "Model":
    """The model with Huber's loss, whose second derivative in the score is at most 1."""
    return replace(with_squared(model), loss=huber, loss_gradient=huber_gradient)


def linear(config: ModelConfig, shape: Shape, n_classes: int) -> "Model":
    """One linear layer with one score and without a bias, zero at first; the squared loss."""
    from m2fdp.core.models.registry import linear as one_layer

    return with_squared(one_layer(config, shape, 1))


def _by(name: str) -> Callable[[np.ndarray, np.ndarray], float]:
    """Scikit-learn's metric of labels (R,) and scores (R, 1), both in the units of the column."""

    def value(labels: np.ndarray, scores: np.ndarray) -> float:
        from sklearn import metrics  # takes a second to import

        if scores.shape[1] > 1:
            raise ValueError(f"labels are no numbers, but of {scores.shape[1]} classes")
        if name == "r2_score" and len(labels) < 2:
            return nan  # no spread to explain
        return float(getattr(metrics, name)(labels, scores[:, 0]))

    return value


MAE = Metric("mae", _by("mean_absolute_error"), "MAE", digits=3)
RMSE = Metric("rmse", _by("root_mean_squared_error"), "RMSE", digits=3)
R2 = Metric("r2", _by("r2_score"), "R²", digits=3)
