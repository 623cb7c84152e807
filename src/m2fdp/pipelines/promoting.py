"""A run's model in MLflow's registry, with what it promises and why it is there."""

from __future__ import annotations

from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from m2fdp.core.errors import InputError
from m2fdp.core.formatting import EPSILON_NAMES
from m2fdp.pipelines.mlflow_internals import IMPOSSIBLE, UNKNOWN, check_alias
from m2fdp.pipelines.tracking import connect

CELL = "single"  # whose latest run is promoted, unless another is named
VERIFIED = "verified"
# Of the model's params, which say what it was bought with.
_PROMISES = (*EPSILON_NAMES.values(), "epsilon_nominal", "delta", "adjacency", "unit", "dataset")


def promote(
    project: Path, name: str, alias: str, run_id: str | None, reason: str | None
) -> ModelVersion:
    """Register the model of a run as the next version of `name`, to which `alias` then points.

    A run whose model is a version of `name` already gets no other one.

    Args:
        run_id: MLflow's id; None = the latest finished run of the cell `single` that has a model.
        reason: why; it must be told where the promise is not verified, and is kept as a tag.

    Raises:
        InputError: there is no such run or model, its promise is not verified and no reason is
            told, or MLflow takes no such name or alias.
    """
    try:
        check_alias(name, alias)
    except MlflowException as error:
        line = " ".join(error.message.split())
        raise InputError("promote", f"{name} --alias={alias}", line) from None
    experiment = connect(project)
    client = MlflowClient()
    run = _latest(client, experiment) if run_id is None else _run(client, run_id)
    if not run.outputs.model_outputs:
        raise InputError("--run", run.info.run_id, "has left no model; name one that has trained")
    model = client.get_logged_model(run.outputs.model_outputs[0].model_id)
    guarantee = model.params.get("privacy", "none")
    if guarantee != VERIFIED and not reason:
        remedy = f"its promise is {guarantee}, not verified; tell why it is promoted with --reason"
        raise InputError("--run", run.info.run_id, remedy)
    tags = {key: model.params[key] for key in _PROMISES if key in model.params}
    tags |= {"privacy": guarantee} | ({"reason": reason} if reason else {})
    version = _version(client, name, model.model_id, run.info.run_id)
    for key, value in tags.items():
        client.set_model_version_tag(name, version.version, key, value)
    client.set_registered_model_alias(name, alias, version.version)
    return version


def _version(client: MlflowClient, name: str, model_id: str, run_id: str) -> ModelVersion:
    """The version of a registered model that is this model; made where there is none."""
    try:
        client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code != UNKNOWN:
            raise
        client.create_registered_model(name)
    for version in client.search_model_versions(f"name = '{name}'"):
        if version.run_id == run_id:  # which has one model
            return version
    source = f"models:/{model_id}"
    return client.create_model_version(name, source, run_id=run_id, model_id=model_id)


def _run(client: MlflowClient, run_id: str) -> Run:
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code not in (UNKNOWN, IMPOSSIBLE):
            raise
        store = mlflow.get_tracking_uri()
        raise InputError("--run", run_id, f"MLflow at {store} has no such run") from None
    if run.info.status != "FINISHED":
        raise InputError("--run", run_id, f"is {run.info.status.lower()}; name a finished run")
    return run


def _latest(client: MlflowClient, experiment: str) -> Run:
    """Of the cell `single`, the latest finished run that has a model."""
    found = client.search_runs(
        [experiment],
        f"tags.cell = '{CELL}' and attributes.status = 'FINISHED'",
        order_by=["attributes.start_time DESC"],
    )
    for run in found:
        if run.outputs.model_outputs:
            return run
    remedy = f"no finished run of the cell {CELL} has a model; train one, or name a run"
    raise InputError("--run", "(none)", remedy)
