"""Metrics of classification that need no code of one's own, computed by scikit-learn.

Of two classes the second is the one that is looked for; of more, each against all others.
"""

from math import nan

import numpy as np
from scipy.special import softmax

from m2fdp.core.metrics import Metric


def _balanced(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import recall_score  # scikit-learn takes a second to import

    found = scores.argmax(axis=1)
    return float(recall_score(labels, found, labels=np.unique(labels), average="macro"))


def _f1(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    classes = np.arange(scores.shape[1])
    options = {"labels": classes, "average": "macro", "zero_division": 0.0}
    return float(f1_score(labels, scores.argmax(axis=1), **options))


def _auc(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    if len(np.unique(labels)) < min(2, scores.shape[1]):
        return nan  # no pair to put in order
    chances = softmax(scores.astype(np.float64), axis=1)
    if chances.shape[1] == 2:
        return float(roc_auc_score(labels, chances[:, 1]))
    classes = np.arange(chances.shape[1])
    return float(roc_auc_score(labels, chances, multi_class="ovr", labels=classes))


def _average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import average_precision_score

    chances = softmax(scores.astype(np.float64), axis=1)
    if chances.shape[1] == 2:
        return float(average_precision_score(labels, chances[:, 1]))
    return float(average_precision_score(np.eye(chances.shape[1])[labels], chances))


def _log_loss(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import log_loss

    chances = softmax(scores.astype(np.float64), axis=1)
    return float(log_loss(labels, chances, labels=np.arange(scores.shape[1])))


def _brier(labels: np.ndarray, scores: np.ndarray) -> float:
    """Mean squared error of the chances (Brier 1950); of two classes that of the second's alone."""
    chances = softmax(scores.astype(np.float64), axis=1)
    squares = (chances - np.eye(chances.shape[1])[labels]) ** 2
    return float((squares[:, 1] if chances.shape[1] == 2 else squares.sum(axis=1)).mean())


BALANCED = Metric("balanced_accuracy", _balanced, "balanced accuracy", digits=3, share=True)
AUC = Metric("auc", _auc, "AUC", digits=3, share=True)
AVERAGE_PRECISION = Metric(
    "average_precision", _average_precision, "average precision", digits=3, share=True
)
F1 = Metric("f1", _f1, "F1 (macro)", digits=3, share=True)
LOG_LOSS = Metric("log_loss", _log_loss, "log loss", digits=3)
BRIER = Metric("brier", _brier, "Brier score", digits=3)
