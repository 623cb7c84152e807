"""A trained model as MLflow knows models: a folder that `mlflow.pyfunc` loads, and its entry among
the logged models of the run.

The folder is written without a store, so that one that fails costs nothing but a later try.
MLflow's own writers compare the requirements with all that is installed, which takes a second, so
it is put together here, of what MLflow documents (`mlflow.models`, `mlflow.pyfunc.add_to_model`).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import yaml
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Metric, Run
from mlflow.models import Model, ModelSignature
from mlflow.types import Schema, TensorSpec
from torch import Tensor

from m2fdp import serving
from m2fdp.core.config import ModelConfig
from m2fdp.core.formatting import EPSILON_NAMES
from m2fdp.core.models.checks import Shape
from m2fdp.pipelines.datasets import FolderDataset

NAME = "model"  # runs:/<run id>/model
_LIBRARIES = ("m2fdp", "numpy", "torch")
# Metrics of the run that are told of its model too.
_TOLD = ("accuracy", *EPSILON_NAMES.values(), "epsilon_nominal")
_EXAMPLE, _SERVED_EXAMPLE = "input_example.json", "serving_input_example.json"


@dataclass(frozen=True, eq=False)
class ServableModel:
    """A trained model with what others must know of it.

    Attributes:
        config: what `build_model` builds it from, with shape and n_classes.
        shape: (C, H, W) of one input.
        state_dict: the parameters by name.
        metadata: plain values: what privacy it was bought with, and what it reaches.
    """

    config: ModelConfig
    shape: Shape
    n_classes: int
    state_dict: Mapping[str, Tensor]
    metadata: Mapping[str, Any]


class ServableModelDataset(FolderDataset):
    """A model in MLflow's format, in a folder that replaces an older one."""

    def save(self, data: ServableModel) -> None:
        with _replacing_folder(Path(self._path)) as folder:
            _write(folder, data)

    def _exists(self) -> bool:
        return (Path(self._path) / "MLmodel").is_file()


def publish(client: MlflowClient, run_id: str, folder: Path) -> None:
    """Make the model of a folder a logged model of the run, once.

    One that an earlier try has begun and not finished is finished.
    """
    run = client.get_run(run_id)
    logged = client.search_logged_models(
        [run.info.experiment_id], filter_string=f"source_run_id = '{run_id}'"
    )
    if any(model.status == LoggedModelStatus.READY for model in logged):
        return
    described = Model.load(str(folder))
    about = {key: str(value) for key, value in (described.metadata or {}).items()}
    model = next(iter(logged), None) or client.create_logged_model(
        run.info.experiment_id,
        NAME,
        source_run_id=run_id,
        params=about,
        model_type=about.get("model"),
    )
    described.model_id, described.run_id = model.model_id, run_id
    described.save(str(folder / "MLmodel"))
    client.log_model_artifacts(model.model_id, str(folder))
    client.log_batch(run_id, metrics=_of_model(client, run, model.model_id))
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, int(about.get("rounds", 0)))])


def _of_model(client: MlflowClient, run: Run, model_id: str) -> list[Metric]:
    """What a run has reached and promised, as metrics of its model on the data set that it read.

    They are the run's last values, with their steps and times, so that the run has them no second
    time.
    """
    used = [each.dataset for each in run.inputs.dataset_inputs]
    dataset = {"dataset_name": used[0].name, "dataset_digest": used[0].digest} if used else {}
    last = [
        max(client.get_metric_history(run.info.run_id, name), key=lambda m: (m.step, m.timestamp))
        for name in _TOLD
        if name in run.data.metrics
    ]
    return [Metric(m.key, m.value, m.timestamp, m.step, model_id=model_id, **dataset) for m in last]


def _write(folder: Path, servable: ServableModel) -> None:
    shape, n_classes = servable.shape, servable.n_classes
    data = folder / "data"
    data.mkdir()
    serving.write_model(data, servable.config, shape, n_classes, servable.state_dict)
    real = np.dtype("float32")
    model = Model(
        signature=ModelSignature(
            inputs=Schema([TensorSpec(real, (-1, *shape))]),
            outputs=Schema([TensorSpec(real, (-1, n_classes))]),
        ),
        saved_input_example_info={
            "artifact_path": _EXAMPLE,
            "serving_input_path": _SERVED_EXAMPLE,
            "type": "ndarray",
        },
        metadata=dict(servable.metadata),
    )
    environment = {"conda_env": "conda.yaml", "python_env": "python_env.yaml"}
    mlflow.pyfunc.add_to_model(model, serving.__name__, data="data", **environment)
    model.save(str(folder / "MLmodel"))
    # An input of one value all over: nobody's record.
    example = np.full((1, *shape), 0.5, dtype=real).tolist()
    (folder / _EXAMPLE).write_text(json.dumps(example), encoding="utf-8")
    (folder / _SERVED_EXAMPLE).write_text(json.dumps({"inputs": example}), encoding="utf-8")
    _write_environment(folder)


def _write_environment(folder: Path) -> None:
    """What must be installed to load the model, in the three forms that MLflow knows."""
    # Builds of one version for other processors are the same to others.
    pinned = [f"{library}=={version(library).partition('+')[0]}" for library in _LIBRARIES]
    pinned.append(f"mlflow=={mlflow.__version__}")
    python = platform.python_version()
    (folder / "requirements.txt").write_text("\n".join(pinned) + "\n", encoding="utf-8")
    python_env = {
        "python": python,
        "build_dependencies": ["pip", "setuptools", "wheel"],
        "dependencies": ["-r requirements.txt"],
    }
    (folder / "python_env.yaml").write_text(
        yaml.safe_dump(python_env, sort_keys=False), encoding="utf-8"
    )
    conda = {
        "name": "mlflow-env",
        "channels": ["conda-forge"],
        "dependencies": [f"python={python}", "pip", {"pip": pinned}],
    }
    (folder / "conda.yaml").write_text(yaml.safe_dump(conda, sort_keys=False), encoding="utf-8")


@contextmanager
def _replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder; when the block ends, it takes the place of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}.{path.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        yield unfinished
        shutil.rmtree(path, ignore_errors=True)
        unfinished.replace(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
