"""Views of runs that MLflow keeps, and the addresses that open them.

MLflow 3 has no such thing in its Python API. What its pages save when somebody shares a view is a
tag of the experiment, JSON, and `viewStateShareKey` in an address names it.
"""

from __future__ import annotations

import json
from typing import Any

from mlflow import MlflowClient

from m2fdp.core.metrics import (
    ACCURACY,
    DELAY,
    ENERGY,
    EPSILON_NOMINAL,
    EPSILON_VERIFIED,
    names_of,
)
from m2fdp.pipelines.descriptions import TRAINING_PAGES

RUNS = "kedro-run"  # the view of the runs that belong to no study
_VIEW = "mlflow.sharedViewState."  # begins the tag
_METRICS = names_of((ACCURACY, EPSILON_VERIFIED, EPSILON_NOMINAL, ENERGY, DELAY))


def save_view(
    client: MlflowClient,
    experiment_id: str,
    key: str,
    chosen: str,
    columns: list[str],
    **more: Any,
) -> None:
    """Keep a view as `key`, in the place of an older one.

    Args:
        chosen: MLflow's filter of the runs that it shows.
        columns: what it shows of each besides what it has reached and promised, as MLflow names
            columns: tags.`seed`.
        more: other entries: `orderByKey`, `groupBy`.
    """
    view = {
        "searchFilter": chosen,
        "orderByAsc": False,
        "selectedColumns": [*(f"metrics.`{name}`" for name in _METRICS), *columns],
        "runsHiddenMode": "SHOW_ALL",
    }
    client.set_experiment_tag(experiment_id, _VIEW + key, json.dumps(view | more))


def save_view_of_runs(client: MlflowClient, experiment_id: str) -> None:
    """Keep the view of all runs that belong to no study, the latest first."""
    columns = [f"tags.`{key}`" for key in ("algorithm", "dataset", "seed", "cell")]
    latest = "attributes.start_time"
    save_view(client, experiment_id, RUNS, "tags.study IS NULL", columns, orderByKey=latest)


def view_link(experiment_id: str, key: str, mode: str) -> str:
    """Where MLflow's pages show a view that is kept, as a TABLE or as a CHART."""
    return (
        f"#/experiments/{experiment_id}/runs?viewStateShareKey={key}"
        f"&compareRunsMode={mode}&{TRAINING_PAGES}"
    )
