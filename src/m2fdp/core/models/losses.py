"""Losses per record: scores (B, C) and labels (B,) to losses (B,)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy."""
    return nn.functional.cross_entropy(scores, labels, reduction="none")


def one_vs_rest_logistic(scores: Tensor, labels: Tensor) -> Tensor:
    """Sum over the classes c of log(1 + exp(-y_c s_c)), y_c = 1 for the label, -1 elsewhere."""
    signs = 2.0 * _is_label(scores, labels).to(scores.dtype) - 1.0
    return nn.functional.softplus(-signs * scores).sum(-1)


def one_vs_rest_hinge(scores: Tensor, labels: Tensor) -> Tensor:
    """Sum over the classes c of max(0, 1 - y_c s_c), y_c = 1 for the label and -1 elsewhere."""
    signs = 2.0 * _is_label(scores, labels).to(scores.dtype) - 1.0
    return nn.functional.relu(1.0 - signs * scores).sum(-1)


def crammer_singer_hinge(scores: Tensor, labels: Tensor) -> Tensor:
    """max(0, 1 + max of s_c over the other classes - s_label)."""
    is_label = _is_label(scores, labels)
    rival = scores.masked_fill(is_label, float("-inf")).amax(-1)
    return nn.functional.relu(1.0 + rival - scores.masked_fill(~is_label, 0.0).sum(-1))


def _is_label(scores: Tensor, labels: Tensor) -> Tensor:
    """bool (B, C); `one_hot` can't be vectorised."""
    return labels[..., None] == torch.arange(scores.shape[-1], device=labels.device)


# The derivatives take and give scores as (..., C, b), for labels (..., b): products of weights and
# features come like this, and it is the faster layout.


def cross_entropy_gradient(scores: Tensor, labels: Tensor) -> Tensor:
    """Derivative of `cross_entropy` in the scores (..., C, b)."""
    return _less_one_at_labels(scores.softmax(-2), labels)


def one_vs_rest_logistic_gradient(scores: Tensor, labels: Tensor) -> Tensor:
    """Derivative of `one_vs_rest_logistic` in the scores (..., C, b)."""
    return _less_one_at_labels(scores.sigmoid(), labels)


def one_vs_rest_hinge_gradient(scores: Tensor, labels: Tensor) -> Tensor:
    """A subgradient of `one_vs_rest_hinge` in the scores (..., C, b); 0 at kinks."""
    rows = labels[..., None, :]
    within_margin = (scores.gather(-2, rows) < 1.0).to(scores.dtype)
    return (scores > -1.0).to(scores.dtype).scatter_(-2, rows, -within_margin)


def _less_one_at_labels(values: Tensor, labels: Tensor) -> Tensor:
    rows = labels[..., None, :]
    return values.scatter_add_(-2, rows, values.new_full((), -1.0).expand(rows.shape))
