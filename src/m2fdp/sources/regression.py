"""A number to learn: models, losses and metrics of labels that are no classes.

A label x in the public range [low, high] is y = 2 (x - low) / (high - low) - 1, a float in [-1, 1],
and a model has one score s, its answer on this scale. Both ends come from the schema; no mean and
no deviation of records does.

Nothing is released that is not released of classes: a label enters through its record's gradient
alone, which is clipped whatever the label is. So epsilon and the ledger's lines stay the same.
"""

from dataclasses import replace
from math import nan, prod
from typing import TYPE_CHECKING

import numpy as np

from m2fdp.core.config import ModelConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.metrics import Metric
from m2fdp.core.models.checks import KEY, Shape

if TYPE_CHECKING:  # a configuration is checked without torch
    from torch import Tensor

    from m2fdp.core.models.registry import Model

LINEAR, LOSSES = "linear", ("squared", "huber")
MEASURES = ("mae", "rmse", "r2")


def of_numbers(config: ModelConfig) -> bool:
    """Whether a model is for labels that are numbers: by its name, or by its loss."""
    return config.name == LINEAR or config.loss in LOSSES


def check_labels(config: ModelConfig, dataset: Dataset) -> None:
    """Refuse a model of classes where labels are numbers, and the other way round.

    Raises:
        InputError: it names the model, or the loss.
    """
    are_numbers = dataset.label_range is not None
    if of_numbers(config) == are_numbers:
        return
    if are_numbers:
        text = "is for classes, and the labels are numbers; use linear, or model.loss: squared"
        raise InputError(KEY, config.name, text)
    key, value = (KEY, LINEAR) if config.name == LINEAR else ("model.loss", config.loss)
    classes = f"is for numbers, and the labels are {dataset.n_classes} classes"
    raise InputError(key, value, f"{classes}; use {'softmax' if key == KEY else 'null'}")


# fmt: off
FACTS = (
    replace(a.OF_CLASSES, key=KEY, remedy="one of classes, such as softmax",
        holds=lambda run: not of_numbers(run.config.model)),
)
# fmt: on


# --- losses of scores (B, 1) and labels (B,); derivatives of scores (..., 1, b), labels (..., b) ---


def squared(scores: "Tensor", labels: "Tensor") -> "Tensor":
    """(s - y)^2 / 2: (B,)."""
    return (scores[..., 0] - labels) ** 2 / 2


def squared_gradient(scores: "Tensor", labels: "Tensor") -> "Tensor":
    """s - y, the derivative of `squared` in the score."""
    return scores - labels[..., None, :]


def huber(scores: "Tensor", labels: "Tensor") -> "Tensor":
    """(s - y)^2 / 2 up to |s - y| = 1, and |s - y| - 1/2 beyond (Huber 1964, delta = 1): (B,)."""
    errors = (scores[..., 0] - labels).abs()
    near = errors.clamp(max=1)
    return near**2 / 2 + (errors - near)


def huber_gradient(scores: "Tensor", labels: "Tensor") -> "Tensor":
    """s - y, at most 1 and at least -1: the derivative of `huber` in the score."""
    return squared_gradient(scores, labels).clamp(-1, 1)


def with_squared(model: "Model") -> "Model":
    """The model with the squared loss, whose second derivative in the score is 1."""
    of_score = {"curvature": 1.0, "curvature_sum": 1.0} if model.linear else {}
    return replace(model, loss=squared, loss_gradient=squared_gradient, **of_score)


def with_huber(model: "Model") -> "Model":
    """The model with Huber's loss, whose second derivative in the score is at most 1."""
    return replace(with_squared(model), loss=huber, loss_gradient=huber_gradient)


def linear(config: ModelConfig, shape: Shape, n_classes: int) -> "Model":
    """One linear layer with one score and without a bias, zero at first; the squared loss."""
    from torch import nn

    from m2fdp.core.models.registry import Model

    layer = nn.Linear(prod(shape), 1, bias=False)
    nn.init.zeros_(layer.weight)
    return with_squared(Model(LINEAR, nn.Sequential(nn.Flatten(), layer), linear=True))


# --- metrics of labels (R,) and scores (R, 1), both in the units of the label's column -------------


def _answers(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if scores.shape[1] > 1:
        raise ValueError(f"needs labels that are numbers, and there are {scores.shape[1]} classes")
    return labels, scores[:, 0]


def _mae(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import mean_absolute_error  # scikit-learn takes a second to import

    return float(mean_absolute_error(*_answers(labels, scores)))


def _rmse(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import root_mean_squared_error

    return float(root_mean_squared_error(*_answers(labels, scores)))


def _r2(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import r2_score

    # One record has no spread to explain.
    return float(r2_score(*_answers(labels, scores))) if len(labels) > 1 else nan


MAE = Metric("mae", _mae, "MAE", digits=3)
RMSE = Metric("rmse", _rmse, "RMSE", digits=3)
R2 = Metric("r2", _r2, "R²", digits=3)
