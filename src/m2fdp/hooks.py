"""What happens around every run: its configuration is checked and its provenance recorded."""

from __future__ import annotations

import hashlib
import logging
import math
import platform
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import mlflow
from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from kedro_mlflow.config.kedro_mlflow_config import KedroMlflowConfig
from kedro_mlflow.framework.hooks.mlflow_hook import MlflowHook
from kedro_mlflow.io.catalog.switch_catalog_logging import switch_catalog_logging
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from omegaconf import OmegaConf
from pydantic import ValidationError

from m2fdp.algorithms import get_algorithm
from m2fdp.config import Config, flatten, parse_config
from m2fdp.errors import InputError, chain
from m2fdp.experiments.checks import check_config, check_equal_rounds, surprises
from m2fdp.files import shown
from m2fdp.interruption import Interrupted
from m2fdp.pipelines import tracking
from m2fdp.pipelines.configuration import check_catalog, mlflow_refusal
from m2fdp.pipelines.locks import locked
from m2fdp.pipelines.outbox import UNSENT, Outbox
from m2fdp.pipelines.resuming import Unfinished, find_unfinished
from m2fdp.pipelines.selection import check_inputs
from m2fdp.pipelines.store import check_store
from m2fdp.simulation.checkpoints import differences

LIBRARIES = (
    "dp-accounting",
    "great-expectations",
    "kedro",
    "m2fdp",
    "mlflow",
    "numpy",
    "opacus",
    "pandas",
    "scikit-learn",
    "torch",
    "torchvision",
)

# Outputs that are functions of records without noise: epsilon does not cover them.
DIAGNOSTICS = frozenset(
    {
        "accuracy_curve",
        "bound",
        "bound_figure",
        "bound_summary",
        "confusion_matrix",
        "confusion_matrix_figure",
        "gradient_norms",
        "label_distribution",
        "manifest",
        "round_metrics",
        "run_summary",
    }
)
FROM_DISK = "from disk"  # the tag `split` of a run that did not make its own
EPSILONS = ("epsilon_nominal", "epsilon_verified")

logger = logging.getLogger(__name__)


class BadInput(click.ClickException):
    """Something that the user can mend; commands show it as one line."""

    exit_code = 2


class Untracked(click.ClickException):
    """A run that came to its end, of which MLflow does not know everything."""

    exit_code = 1


class TrackingHooks(MlflowHook):
    """kedro-mlflow's hooks, less its logs of parameters and files: `RunHooks` has its own."""

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        try:
            super().after_context_created(context)
        except ValidationError as error:
            if error.title != KedroMlflowConfig.__name__:
                raise
            raise BadInput(str(mlflow_refusal(context.config_loader, error))) from None

    @hook_impl
    def before_node_run(
        self, node: Node, catalog: CatalogProtocol, inputs: dict[str, Any], is_async: bool
    ) -> None:
        super().before_node_run(node, catalog, {}, is_async)

    @hook_impl
    def before_pipeline_run(
        self, run_params: dict[str, Any], pipeline: Pipeline, catalog: CatalogProtocol
    ) -> None:
        super().before_pipeline_run(run_params, pipeline, catalog)
        # `RunHooks` sends what is saved: here a store that fails would fail the run.
        switch_catalog_logging(catalog, False)

    @hook_impl
    def on_pipeline_error(
        self,
        error: Exception,
        run_params: dict[str, Any],
        pipeline: Pipeline,
        catalog: CatalogProtocol,
    ) -> None:
        run = mlflow.active_run()
        # What an interruption has become on its way through a library ends as an interruption.
        if run is not None and not any(isinstance(cause, Interrupted) for cause in chain(error)):
            with tracking.told_of_outage(run):
                super().on_pipeline_error(error, run_params, pipeline, catalog)


class RunHooks:
    """Checks a run's configuration before anything starts, and records where its results
    come from."""

    def __init__(self) -> None:
        self._lock = ExitStack()

    @hook_impl(tryfirst=True)
    def after_context_created(self, context: KedroContext) -> None:
        """Refuse a configuration that can't run, before an MLflow run is opened for it."""
        try:
            self._config = parse_config(context.config_loader["parameters"])
            check_config(self._config)
            check_catalog(context.config_loader)
            check_store(tracking.tracking_uri(context.project_path))
            self._unfinished = _unfinished(context, self._config)
        except InputError as error:
            raise BadInput(str(error)) from None
        self._project = context.project_path
        resolvers = {
            "tracking_uri": partial(tracking.tracking_uri, self._project),
            "artifact_location": partial(tracking.artifact_location, self._project),
            "run_id": partial(_run_id, self._unfinished),
            "run_name": partial(_run_name, self._config, self._unfinished),
        }
        for name, resolver in resolvers.items():
            OmegaConf.register_new_resolver(f"m2fdp.{name}", resolver, replace=True)

    @hook_impl
    def after_catalog_created(self, conf_catalog: dict[str, Any]) -> None:
        manifest = conf_catalog["manifest"]
        self._manifest = Path(manifest["dataset"]["filepath"])
        self._manifest_checks = Path(manifest["validator"]["options"]["filepath"])
        described = {name: entry.get("dataset", entry) for name, entry in conf_catalog.items()}
        self._paths = {
            name: Path(entry["filepath"])
            for name, entry in described.items()
            if "filepath" in entry
        }
        self._folders: set[Path] = set()
        self._artifacts = {
            name
            for name, entry in conf_catalog.items()
            if entry["type"].endswith("MlflowArtifactDataset")
        }
        self._metrics = {
            name: entry["key"]
            for name, entry in conf_catalog.items()
            if entry["type"].endswith("MlflowMetricDataset")
        }
        self._cell_folder = self._project / Path(conf_catalog["checkpoints"]["path"]).parent

    @hook_impl(wrapper=True)
    def before_pipeline_run(
        self, run_params: dict[str, Any], pipeline: Pipeline, catalog: CatalogProtocol
    ) -> Generator[None, None, None]:
        """Record who runs what with which code, once MLflow's run is open."""
        try:
            self._check_pipeline(pipeline, catalog, run_params)
            self._lock_cell()
        except InputError as error:
            raise BadInput(str(error)) from None
        yield
        run = mlflow.active_run()
        mlflow.set_tag(tracking.PROCESS_TAG, tracking.process_tag())
        for stale in tracking.close_stale_runs():
            logger.warning("Run %s was cut off; it is marked as killed now.", stale)
        for line in surprises(self._config):
            logger.warning(line)
        code = _code(self._project)
        tags = _tags(self._config) | code
        if "manifest" in pipeline.inputs():
            tags["split"] = FROM_DISK
        if diagnostics := DIAGNOSTICS & pipeline.all_outputs():
            tags["diagnostic"] = ", ".join(sorted(diagnostics))
        params = flatten(self._config.model_dump(exclude={"resume"}))
        if self._unfinished is not None:
            round_ = self._unfinished.checkpoint.progress.state.round
            logger.info("Training goes on after round %d.", round_)
            _warn_of_other_code(self._unfinished.run, code)
            tags["resumed_after_round"] = str(round_)
            params = {}  # it has them, and MLflow lets none change
        MlflowClient().log_batch(
            run.info.run_id,
            params=[Param(key, str(value)) for key, value in params.items()],
            tags=[RunTag(key, value) for key, value in tags.items()],
        )
        unsent = self._cell_folder / UNSENT
        self._outbox = Outbox(run.info.run_id, unsent)
        if self._unfinished is None:
            unsent.unlink(missing_ok=True)
        else:
            self._outbox.take_up()
        self._trains = "model" in pipeline.all_outputs()
        self._split_recorded = self._privacy_recorded = False
        self._planned_rounds = self._config.training.rounds
        self._started = time.perf_counter()
        logger.info("MLflow run %s (make ui)", run.info.run_name)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        if dataset_name in self._paths:
            self._folders.add(self._paths[dataset_name].parent)
        self._record_split(dataset_name)
        if dataset_name in self._artifacts:
            self._outbox.put(files=[self._paths[dataset_name]])
        if dataset_name in self._metrics:
            self._log_metrics({self._metrics[dataset_name]: data})
        self._record_privacy(dataset_name, data)
        if dataset_name == "round_metrics":
            trained = int(data["round"].iloc[-1])
            self._log_metrics({"rounds_trained": trained})
            if trained < self._planned_rounds:
                self._outbox.put(tags={"stopped_early": "true"})

    @hook_impl
    def after_dataset_loaded(self, dataset_name: str, data: Any) -> None:
        self._record_split(dataset_name)
        self._record_privacy(dataset_name, data)

    @hook_impl
    def on_pipeline_error(self) -> None:
        self._outbox.close()
        self._lock.close()

    @hook_impl
    def after_pipeline_run(self) -> None:
        seconds = time.perf_counter() - self._started
        folders = ", ".join(shown(folder) for folder in sorted(self._folders)) or "(no file)"
        logger.info("Done in %.1f s: %s; make ui shows the run.", seconds, folders)
        with self._lock:  # `unsent` is of the cell's files
            self._outbox.take_up()
            left = self._outbox.close()
        if left is not None:
            unsent = shown(self._cell_folder / UNSENT)
            raise Untracked(
                f"MLflow at {mlflow.get_tracking_uri()} has not taken {left}. The files of the "
                f"run are whole; {unsent} keeps the rest. {self._how_to_send()}"
            )

    def _check_pipeline(
        self, pipeline: Pipeline, catalog: CatalogProtocol, run_params: dict[str, Any]
    ) -> None:
        """Refuse what these nodes can't do under this configuration."""
        check_inputs(pipeline, catalog, run_params)
        if self._unfinished is not None and "model" not in pipeline.all_outputs():
            raise InputError("resume", True, "no training is asked for; leave it out")
        if self._makes_other_split(pipeline):
            remedy = "the run trains on a split that lay on the disk; add --pipelines=training"
            raise InputError("resume", True, remedy)
        if {"audit", "bound"} & pipeline.all_outputs():
            check_equal_rounds(self._config)

    def _how_to_send(self) -> str:
        again = "Once it answers, the same command"
        if self._trains and self._config.training.checkpoint_every is not None:
            return f"{again} with resume=true in --params sends everything."
        return f"{again} makes the run anew."

    def _lock_cell(self) -> None:
        """Two runs that write the same files would end each other."""
        self._lock.close()  # of a run that an interruption has ended in this process
        remedy = "give this run one of its own with cell=NAME"
        self._lock.enter_context(
            locked(self._cell_folder / ".lock", "cell", self._config.cell, remedy)
        )

    def _makes_other_split(self, pipeline: Pipeline) -> bool:
        """Whether a run that goes on would lose the split, perhaps an own one, of its start."""
        return (
            self._unfinished is not None
            and self._unfinished.run.data.tags.get("split") == FROM_DISK
            and "manifest" in pipeline.all_outputs()
        )

    def _log_metrics(self, metrics: dict[str, float]) -> None:
        """A run that goes on may have some already."""
        known = {} if self._unfinished is None else self._unfinished.run.data.metrics
        now = int(time.time() * 1000)
        new = metrics.keys() - known.keys()
        self._outbox.put([Metric(name, metrics[name], now, 0) for name in new])

    def _record_privacy(self, dataset_name: str, data: dict[str, Any]) -> None:
        """Once a run: what it promises, or what the run whose model it evaluates has promised."""
        if dataset_name != "privacy_summary" or self._privacy_recorded:
            return
        tags = {"privacy": data["guarantee"]}
        if data.get("records_in_clear", {}).get("validation"):
            tags["held_out"] = "in clear"
        self._outbox.put(tags=tags)
        self._log_metrics(_epsilons(data))
        self._planned_rounds = data.get("rounds_planned", self._config.training.rounds)
        self._privacy_recorded = True

    def _record_split(self, dataset_name: str) -> None:
        """Once a run, when the catalog has validated the manifest that the run uses."""
        if dataset_name != "manifest" or self._split_recorded:
            return
        digest = hashlib.sha256(self._manifest.read_bytes()).hexdigest()
        if self._unfinished is not None:
            before = self._unfinished.run.data.tags.get("split_sha256", digest)
            if digest != before:
                remedy = "the run began with another split; leave resume out to start anew"
                raise InputError(shown(self._manifest), digest[:12], remedy)
        self._outbox.put(tags={"split_sha256": digest}, files=[self._manifest_checks])
        self._split_recorded = True


def _epsilons(summary: dict[str, Any]) -> dict[str, float]:
    """The finite epsilons of a privacy summary by metric; there is none for an infinite one."""
    values = {name: summary[name] for name in EPSILONS if name in summary}
    for kind, value in summary.get("epsilon_by_observer", {}).items():
        values[f"epsilon_observer/{kind}"] = value
    return {name: float(value) for name, value in values.items() if math.isfinite(float(value))}


def _unfinished(context: KedroContext, config: Config) -> Unfinished | None:
    """The run to go on with, if `resume` asks for it."""
    if not config.resume:
        return None
    project = context.project_path
    folder = project / context.config_loader["catalog"]["checkpoints"]["path"]
    return find_unfinished(folder, config, tracking.tracking_uri(project))


def _run_id(unfinished: Unfinished | None) -> str | None:
    return None if unfinished is None else unfinished.run.info.run_id


def _run_name(config: Config, unfinished: Unfinished | None) -> str:
    if unfinished is not None:
        return unfinished.run.info.run_name
    return f"{config.algorithm}-{config.dataset.name}-seed_{config.seed}"


def _tags(config: Config) -> dict[str, str]:
    """How reports find and group the run."""
    return {
        "algorithm": config.algorithm,
        "role": get_algorithm(config.algorithm).role,
        "dataset": config.dataset.name,
        "seed": str(config.seed),
        "cell": config.cell,
    }


def _code(project: Path) -> dict[str, str]:
    """The versions of everything that computes: libraries, and this project's own commit."""
    tags = {f"version.{library}": version(library) for library in LIBRARIES}
    tags["version.python"] = platform.python_version()
    commit = _git(project, "rev-parse", "HEAD")
    if commit is not None:
        tags["git_commit"] = commit
        tags["git_dirty"] = str(bool(_git(project, "status", "--porcelain"))).lower()
    return tags


def _warn_of_other_code(run: Run, code: dict[str, str]) -> None:
    before = {key: run.data.tags.get(key) for key in code}
    for key, (old, new) in differences(before, code).items():
        logger.warning(
            "%s was %s and is %s: the results may differ from an uninterrupted run's.",
            key,
            old,
            new,
        )


def _git(project: Path, *arguments: str) -> str | None:
    """What git answers, or None without git or outside a repository."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(project), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
