"""Metrics as a user's own file has them: good ones and bad ones."""

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from m2fdp.extend import Metric

calls: list[int] = []


def _balanced(labels, scores):
    return balanced_accuracy_score(labels, scores.argmax(axis=1))


def _worst(labels, scores, *, losses):
    return losses.max()


def _overwrites(labels, scores):
    labels[:] = 0
    return 1.0


def _fails_later(labels, scores):
    calls.append(len(labels))
    return 1.0 if len(calls) < 4 else float("nan")


BALANCED = Metric("balanced", _balanced, label="balanced accuracy", digits=3, share=True)
WORST = Metric("worst", _worst, unit="nats")
AGAIN = Metric("balanced", _worst)
RAISES = Metric("raises", lambda labels, scores: 1 / 0)
VECTOR = Metric("vector", lambda labels, scores: np.ones(3))
TEXT = Metric("text", lambda labels, scores: "good")
NOTHING = Metric("nothing", lambda labels, scores: None)
NAN = Metric("nan", lambda labels, scores: float("nan"))
OVERWRITES = Metric("overwrites", _overwrites)
NO_FUNCTION = Metric("no_function")
LOSS = Metric("loss", _balanced)
ARM = Metric("arm", _balanced)
SAME_LABEL = Metric("other", _balanced, label="accuracy")
DECISION = Metric("eta", _balanced)
VOLATILITY = Metric("volatility", _balanced)
FAILS_LATER = Metric("fails_later", _fails_later)
NO_METRIC = _balanced
