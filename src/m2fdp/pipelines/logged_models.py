"""A trained model as MLflow knows models: a folder that `mlflow.pyfunc` loads, its entry among the
logged models of the run, and its versions in the registry.

The folder is written without a store: one that fails costs nothing but a later try. It follows the
format that MLflow documents, since its own writers take a second to compare what is installed.
"""

import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import mlflow.pyfunc
import numpy as np
import yaml
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Metric, Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, Schema, TensorSpec
from torch import Tensor

from m2fdp import serving
from m2fdp.core.config import ModelConfig
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import EPSILON_NAMES
from m2fdp.core.models.checks import Shape
from m2fdp.features.config import FeaturesConfig
from m2fdp.pipelines.datasets import FolderDataset
from m2fdp.pipelines.mlflow_internals import IMPOSSIBLE, UNKNOWN, AnyType, check_alias
from m2fdp.pipelines.tracking import connect
from m2fdp.tables.rows import LABEL, RowMap

NAME = "model"  # runs:/<run id>/model
_LIBRARIES = ("m2fdp", "numpy", "torch", "mlflow")
# Metrics of the run that are told of its model too.
_TOLD = ("accuracy", *EPSILON_NAMES.values(), "epsilon_nominal")
_EXAMPLE, _SERVED_EXAMPLE = "input_example.json", "serving_input_example.json"


@dataclass(frozen=True, eq=False)
class ServableModel:
    """A trained model with what others must know of it."""

    config: ModelConfig
    shape: Shape  # (C, H, W) of one record
    n_classes: int
    state_dict: Mapping[str, Tensor]
    metadata: Mapping[str, Any]  # plain values: what privacy it was bought with
    rows: RowMap | None = None  # of a model of tables
    features: FeaturesConfig | None = None  # of a model that is given features


class ServableModelDataset(FolderDataset):
    """A model in MLflow's format, in a folder that replaces an older one."""

    def save(self, data: ServableModel) -> None:
        path = Path(self._path)
        unfinished = path.with_name(f".{os.getpid()}.{path.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            _write(unfinished, data)
            shutil.rmtree(path, ignore_errors=True)
            unfinished.replace(path)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise

    def _exists(self) -> bool:
        return (Path(self._path) / "MLmodel").is_file()


def publish(client: MlflowClient, run_id: str, folder: Path) -> None:
    """Make the model of a folder a logged model of the run, once; one that an earlier try has
    begun is finished."""
    run = client.get_run(run_id)
    of_run = f"source_run_id = '{run_id}'"
    logged = client.search_logged_models([run.info.experiment_id], filter_string=of_run)
    if any(model.status == LoggedModelStatus.READY for model in logged):
        return
    described = Model.load(str(folder))
    about = {key: str(value) for key, value in (described.metadata or {}).items()}
    kind = {"source_run_id": run_id, "params": about, "model_type": about.get("model")}
    model = next(iter(logged), None)
    model = model or client.create_logged_model(run.info.experiment_id, NAME, **kind)
    described.model_id, described.run_id = model.model_id, run_id
    described.save(str(folder / "MLmodel"))
    client.log_model_artifacts(model.model_id, str(folder))
    client.log_batch(run_id, metrics=_of_model(client, run, model.model_id))
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, int(about.get("rounds", 0)))])


def _of_model(client: MlflowClient, run: Run, model_id: str) -> list[Metric]:
    """The run's accuracy and epsilons as metrics of its model on the data set that it read. They
    keep the steps and times of the run's last values, so that the run has them once."""
    used = [each.dataset for each in run.inputs.dataset_inputs]
    dataset = {"dataset_name": used[0].name, "dataset_digest": used[0].digest} if used else {}
    last = [
        max(client.get_metric_history(run.info.run_id, name), key=lambda m: (m.step, m.timestamp))
        for name in _TOLD
        if name in run.data.metrics
    ]
    return [Metric(m.key, m.value, m.timestamp, m.step, model_id=model_id, **dataset) for m in last]


def _write(folder: Path, servable: ServableModel) -> None:
    shape, n_classes, real = servable.shape, servable.n_classes, np.dtype("float32")
    data = folder / "data"
    data.mkdir()
    of_model = servable.config, shape, n_classes, servable.state_dict
    serving.write_model(data, *of_model, servable.rows, servable.features)
    inputs = Schema([TensorSpec(real, (-1, *shape))])
    outputs = Schema([TensorSpec(real, (-1, n_classes))])
    # An input of one value all over: nobody's record.
    example: Any = np.full((1, *shape), 0.5, dtype=real).tolist()
    served, kind = {"inputs": example}, {"type": "ndarray"}
    if servable.rows is not None:
        inputs, outputs = _of_rows(servable.rows)
        row = servable.rows.example()
        example = {"columns": list(row), "data": [list(row.values())]}
        served, kind = {"dataframe_split": example}, {"type": "dataframe", "pandas_orient": "split"}
    model = Model(
        signature=ModelSignature(inputs, outputs),
        saved_input_example_info=dict(
            artifact_path=_EXAMPLE, serving_input_path=_SERVED_EXAMPLE, **kind
        ),
        metadata=dict(servable.metadata),
    )
    environment = {"conda_env": "conda.yaml", "python_env": "python_env.yaml"}
    mlflow.pyfunc.add_to_model(model, serving.__name__, data="data", **environment)
    model.save(str(folder / "MLmodel"))
    # What must be installed to load the model, in the three forms that MLflow knows. Builds of one
    # version for other processors are the same to others.
    pinned = [f"{library}=={version(library).partition('+')[0]}" for library in _LIBRARIES]
    python = platform.python_version()
    tools, packages = ["pip", "setuptools", "wheel"], [f"python={python}", "pip", {"pip": pinned}]
    pip = {"python": python, "build_dependencies": tools, "dependencies": ["-r requirements.txt"]}
    conda = {"name": "mlflow-env", "channels": ["conda-forge"], "dependencies": packages}
    texts = {
        _EXAMPLE: json.dumps(example),
        _SERVED_EXAMPLE: json.dumps(served),
        "requirements.txt": "\n".join([*pinned, ""]),
        "python_env.yaml": yaml.safe_dump(pip, sort_keys=False),
        "conda.yaml": yaml.safe_dump(conda, sort_keys=False),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _of_rows(rows: RowMap) -> tuple[Schema, Schema]:
    """MLflow's schemas of a table's rows, and of the answers."""
    # Of any kind: MLflow would not take a whole number for a column of numbers, nor 1 for "1".
    inputs = [ColSpec(AnyType(), name, required=needed) for name, needed in rows.needed.items()]
    chances = [ColSpec("double", name) for name in rows.schema.classes]
    kind = "string" if chances else "double"
    return Schema(inputs), Schema([ColSpec(kind, LABEL), *chances])


def load(project: Path, run: str) -> serving.Served:
    """The model of a run, by the name of its cell or by MLflow's id.

    Raises:
        InputError: there is none, or it is not of tables.
    """
    folder = project / "data" / "06_models" / run / "mlflow_model"
    if not (folder / "MLmodel").is_file():
        from kedro.framework.startup import bootstrap_project  # sets up logs

        bootstrap_project(project)
        connect(project)
        client = MlflowClient()
        outputs = _run(client, run).outputs.model_outputs
        if not outputs:
            raise InputError("RUN", run, "has left no model; name one that has trained")
        model = client.get_logged_model(outputs[0].model_id)
        folder = Path(mlflow.artifacts.download_artifacts(model.model_uri))
    served = serving.read_model(folder / "data")
    if served.rows is None:
        raise InputError("RUN", run, "is of no table; valid: a run with dataset.name=table")
    return served


CELL = "single"  # whose latest run is promoted, unless another is named
VERIFIED = "verified"
# Of the model's params, which say what it was bought with.
_PROMISES = (*EPSILON_NAMES.values(), "epsilon_nominal", "delta", "adjacency", "unit", "dataset")


def promote(
    project: Path, name: str, alias: str, run_id: str | None, reason: str | None
) -> ModelVersion:
    """Register the model of a run as a version of `name`, once, to which `alias` then points.

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
    for known in client.search_model_versions(f"name = '{name}'"):
        if known.run_id == run_id:  # which has one model
            return known
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
    finished, latest = f"tags.cell = '{CELL}' and attributes.status = 'FINISHED'", "start_time DESC"
    for run in client.search_runs([experiment], finished, order_by=[f"attributes.{latest}"]):
        if run.outputs.model_outputs:
            return run
    remedy = f"no finished run of the cell {CELL} has a model; train one, or name a run"
    raise InputError("--run", "(none)", remedy)
