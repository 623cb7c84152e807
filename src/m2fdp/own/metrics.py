"""Metrics of a user's own: loaded by name, tried out, and measured of records."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from m2fdp.core.config import Config
from m2fdp.core.errors import InputError, among
from m2fdp.core.formatting import EPSILON_NAMES
from m2fdp.core.metrics import KEY, METRICS, OF_CORE, OWN, Metric, names_of
from m2fdp.core.own_code import is_own
from m2fdp.given.own_code import guarded, keywords_of, load

_LOSSES = "losses"  # the argument of that name
# Columns of tables that are no metrics: a metric of one's own can't have their names.
_COLUMNS = {
    *("round", "rounds", "run", "run_id", "role", "privacy", "arm", "version", "seeds", "place"),
    *("seconds", "commit", "configuration", "split", "schedule", "answers", "delta"),
    *EPSILON_NAMES.values(),
}


def own_metrics(names: Sequence[str]) -> dict[str, Metric]:
    """The users' own metrics, by the names that `training.metrics` gives.

    Raises:
        InputError: no metric, none of one's own, or a name or label that something else has.
    """
    labels = (metric.label for metric in OF_CORE)
    taken = {*names_of(OF_CORE), *labels, *_COLUMNS, *Config.model_fields}
    found: dict[str, Metric] = {}
    for name in names:
        if not is_own(name) and name not in METRICS:
            valid = f"valid are {among(name, [*METRICS, 'package.module:NAME'])}"
            raise InputError(KEY, name, f"is unknown; {valid}")
        metric = load(KEY, name, Metric) if is_own(name) else METRICS[name]
        if metric.value is None:
            raise InputError(KEY, name, "has no function of labels and scores (Metric.value)")
        called = {metric.name, metric.label}
        if clash := called & taken:
            text = f"is called {min(clash)}, as something else in tables is; name it otherwise"
            raise InputError(KEY, name, text)
        taken |= called
        found[name] = metric
    OWN.update({metric.name: metric for metric in found.values()})
    return found


def own_values(
    metrics: Mapping[str, Metric], labels: np.ndarray, scores: np.ndarray, losses: np.ndarray
) -> dict[str, float]:
    """What the users' own metrics make of records, by the metrics' names in tables.

    Args:
        metrics: what `own_metrics` returns.
        labels: int64 (R,).
        scores: (R, C).
        losses: (R,).

    Raises:
        InputError: a function fails, or returns something else than one finite number.
    """
    labels, scores, losses = map(_read_only, (labels, scores, losses))
    values = {}
    for name, metric in metrics.items():
        function: Callable[..., Any] = metric.value  # type: ignore[assignment]  # `own_metrics`
        more = {_LOSSES: losses} if _LOSSES in keywords_of(function) else {}
        records = f"{len(labels):,} held-out records"
        with guarded(KEY, name, f"fails on {records}"):
            answer = np.asarray(function(labels, scores, **more))
        if answer.ndim or answer.dtype.kind not in "iuf":
            shape = f"an array of shape {answer.shape}" if answer.ndim else repr(answer.item())
            raise InputError(KEY, name, f"makes {shape} of {records}; valid: one number")
        if not np.isfinite(answer):
            raise InputError(KEY, name, f"makes {answer} of {records}; valid: a finite number")
        values[metric.name] = float(answer)
    return values


def try_out(metrics: Mapping[str, Metric], labels: np.ndarray, n_classes: int) -> None:
    """Try the users' own metrics on the held-out labels, with scores that are drawn.

    Raises:
        InputError: see `own_values`.
    """
    draws = np.random.default_rng(0)
    scores = draws.normal(size=(len(labels), n_classes)).astype(np.float32)
    losses = draws.exponential(size=len(labels)).astype(np.float32)
    own_values(metrics, labels, scores, losses)


def _read_only(values: np.ndarray) -> np.ndarray:
    view = values.view()
    view.setflags(write=False)
    return view
