"""What happens around every run: its configuration is checked and its provenance recorded."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import mlflow
from click import ClickException
from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import CatalogProtocol, DataCatalog, MemoryDataset
from kedro.pipeline import Node, Pipeline
from kedro.validation.exceptions import DataValidationError
from kedro_mlflow.config.kedro_mlflow_config import KedroMlflowConfig
from kedro_mlflow.framework.hooks.mlflow_hook import MlflowHook
from kedro_mlflow.io.catalog.switch_catalog_logging import switch_catalog_logging
from mlflow.exceptions import MlflowException
from omegaconf import OmegaConf
from pydantic import ValidationError

from m2fdp.command_errors import BadInput, Untracked
from m2fdp.core.config import flatten
from m2fdp.core.errors import InputError, chain
from m2fdp.core.experiment.checks import check_config, surprises
from m2fdp.core.experiment.request import Request, refuse_idle
from m2fdp.core.files import check_folders, replacing, shown
from m2fdp.core.own_code import GIVEN
from m2fdp.expectations.process import UncheckedError, beside, settle
from m2fdp.given.loading import parse_config
from m2fdp.interruption import Interrupted
from m2fdp.pipelines import cells, clock, data, evaluation, features, privacy, topology, tracking
from m2fdp.pipelines.configuration import CatalogEntries, StrictConfigLoader, check_catalog
from m2fdp.pipelines.datasets import rows_of
from m2fdp.pipelines.mlflow_internals import EXISTS, outside_notebooks
from m2fdp.pipelines.provenance import tell_beginning
from m2fdp.pipelines.recording import Outbox, Recorder
from m2fdp.pipelines.selection import DEFAULT, READING, asked_for, check_inputs, check_made, reading
from m2fdp.pipelines.tracking import check_store, first_line, locked, reason
from m2fdp.processes.sites import check_execution
from m2fdp.reporting.naming import run_name
from m2fdp.reporting.pictures import Drawing, write_pdf
from m2fdp.tables.expected import TABLE

# What is there before anything is trained.
_PLANNING = (data, topology, features, privacy)
# Nodes that begin the run themselves, when they have refused what they refuse.
_SELF_BEGINNING = frozenset({"train_model", "attack_run"})

logger = logging.getLogger(__name__)


class RunHooks:
    """Checks a run's configuration before it starts; records where its results come from."""

    def __init__(self) -> None:
        self._held = ExitStack()  # the cell's lock, and the work beside the split's checks

    @hook_impl(tryfirst=True)
    def after_context_created(self, context: KedroContext) -> None:
        """Refuse a configuration that can't run, before an MLflow run is opened for it."""
        try:
            self._config = parse_config(context.config_loader["parameters"])
            # Which of them are to run is known when the pipeline is.
            self._plan = check_config(self._config, frozenset(READING))
            loader = cast(StrictConfigLoader, context.config_loader)  # settings.py says so
            unread = loader.unread()
            check_catalog(loader)
            check_store(tracking.tracking_uri(context.project_path))
            self._unfinished = None
            if self._config.resume:
                folder = context.project_path / loader["catalog"]["checkpoints"]["path"]
                uri = tracking.tracking_uri(context.project_path)
                self._unfinished = cells.find_unfinished(folder, self._config, uri)
                cells.check_own_code(self._unfinished, self._config)
        except InputError as error:
            raise BadInput(str(error)) from None
        if unread:
            logger.warning("Nothing reads %s.", ", ".join(map(shown, unread)))
        self._project = context.project_path
        before = None if self._unfinished is None else self._unfinished.run.info
        typed = flatten(loader.runtime_params or {})
        resolvers: dict[str, Callable[[], Any]] = {
            "tracking_uri": partial(tracking.tracking_uri, self._project),
            "artifact_location": partial(tracking.artifact_location, self._project),
            "run_id": lambda: before and before.run_id,
            "run_name": lambda: before.run_name if before else run_name(self._config, typed),
        }
        for name, resolver in resolvers.items():
            OmegaConf.register_new_resolver(f"m2fdp.{name}", resolver, replace=True)
        self._connect(context, loader)

    @hook_impl
    def after_catalog_created(self, catalog: CatalogProtocol, conf_catalog: dict[str, Any]) -> None:
        """Hand the nodes the configuration that is checked, so that none checks it again, and what
        they call when they have nothing more to refuse."""
        self._entries = CatalogEntries.of(conf_catalog)
        GIVEN["catalog"] = partial(rows_of, catalog)
        given = {"config": self._config, "plan": self._plan, "begin_run": self._begin}
        for name, value in given.items():
            catalog[name] = MemoryDataset(value, copy_mode="assign")
        if not self._config.figures:
            kedro = logging.getLogger(DataCatalog.__module__)
            kedro.disabled = True  # it would warn of each that is replaced
            try:
                for name in filter(self._entries.printed, self._entries.files):
                    catalog[name] = MemoryDataset(copy_mode="assign")
            finally:
                kedro.disabled = False

    @hook_impl
    def before_pipeline_run(
        self, run_params: dict[str, Any], pipeline: Pipeline, catalog: CatalogProtocol
    ) -> None:
        """Refuse what can be refused before any node runs."""
        # Nodes get the defaults of parameters that no file sets.
        values = flatten(self._config.model_dump())
        for name in pipeline.inputs() - set(catalog):
            if (key := name.removeprefix("params:")) in values:
                catalog[name] = MemoryDataset(values[key])
        try:
            self._check_pipeline(pipeline, catalog, run_params)
            check_folders([*self._entries.files.values(), self._entries.manifest_checks])
            self._held.close()  # of a run that an interruption has ended in this process
            lock, remedy = self._entries.cell_folder / ".lock", "give this run one of its own with"
            # Two runs that write the same files would end each other.
            self._held.enter_context(locked(lock, "cell", self._config.cell, f"{remedy} cell=NAME"))
            self._held.enter_context(beside())
            cells.check_promise(pipeline, catalog, self._config)
            # The outbox sends what is saved: here a store that fails would fail the run. What the
            # pipeline has no part in is not made for this.
            used = {name: catalog[name] for name in sorted(pipeline.datasets()) if name in catalog}
            switch_catalog_logging(used, False)
            self._verdict = cells.CellVerdict(
                self._entries, pipeline, catalog, self._config, self._plan.private, self._unfinished
            )
        except InputError as error:
            self._held.close()
            raise BadInput(str(error)) from None
        for line in surprises(self._config, self._plan):
            logger.warning(line)
        self._pipeline, self._run_params = pipeline, run_params
        self._trains = "model" in pipeline.all_outputs()
        before = self._unfinished and self._unfinished.run
        self._outbox = Outbox()
        self._recorder = Recorder(self._outbox, self._entries, self._config, before, self._trains)
        self._started, self._begun = time.perf_counter(), False
        if not self._opens_run:  # whoever has opened it tells it of its end, too
            self._begin()

    @hook_impl
    def before_node_run(self, node: Node) -> None:
        """Wait for the split's verdict before anything is made of a model, and open MLflow's run
        for whatever does more than look. What trains does both itself, once nothing is refused."""
        if node.name not in _nodes(*_PLANNING) | {"train_model"}:
            settle()
        if node.name not in _nodes(*_PLANNING, clock, evaluation) | _SELF_BEGINNING:
            self._begin()

    @hook_impl
    def after_node_run(self, node: Node, inputs: dict[str, Any]) -> None:
        self._verdict.node_ran(node, inputs)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        if dataset_name == "model":
            self._verdict.model_saved()
        if isinstance(data, Drawing) and (printed := self._entries.printed(dataset_name)):
            self._print(data, self._entries.files[dataset_name], printed)
        self._recorder.saved(dataset_name, data)

    @hook_impl
    def after_dataset_loaded(self, dataset_name: str, data: Any) -> None:
        self._recorder.loaded(dataset_name, data)

    @hook_impl
    def on_pipeline_error(self, error: Exception) -> None:
        # What an interruption has become on its way through a library ends as an interruption.
        if any(isinstance(cause, Interrupted) for cause in chain(error)):
            self._close()
            return
        try:
            with suppress(UncheckedError, OSError):  # no verdict: what failed is told below
                settle()
        except DataValidationError as refused:  # it explains whatever has followed
            # What reads a table names the line of its file.
            if not (refused.dataset_name == TABLE and isinstance(error, InputError)):
                self._end_failed(refused)
                raise refused from None
        self._end_failed(error)

    @hook_impl
    def after_pipeline_run(self) -> None:
        with self._held:
            settle()
            outbox = self._begin()
            seconds = time.perf_counter() - self._started
            folders = ", ".join(map(shown, sorted(self._recorder.folders))) or "(no file)"
            logger.info("Done in %.1f s: %s; make ui shows the run.", seconds, folders)
            self._recorder.end(mlflow.active_run(), asked_for(self._run_params))
            unsent = outbox.close()
        if unsent is not None:
            goes_on = self._trains and self._config.training.checkpoint_every is not None
            resumed = "with resume=true in --params sends everything"
            again = resumed if goes_on else "makes the run anew"
            raise Untracked(
                f"MLflow at {mlflow.get_tracking_uri()} has not taken {unsent}. The files of the "
                f"run are whole. Once it answers, the same command {again}."
            )
        if self._opens_run:
            mlflow.end_run()

    def _begin(self) -> Outbox:
        """Open MLflow's run, if it is not open: what is refused before has none."""
        if not self._begun:
            self._begun = True
            if self._opens_run:  # or else the caller of this session has opened one for it
                named = self._asked.name or "+".join(asked_for(self._run_params)) or DEFAULT
                with outside_notebooks():
                    mlflow.start_run(self._asked.id, run_name=named, nested=self._asked.nested)
            mlflow.set_tag(tracking.PROCESS_TAG, tracking.process_tag())
            run = mlflow.active_run()
            for stale in tracking.close_stale_runs():
                logger.warning("Run %s was cut off; it is marked as killed now.", stale)
            about = self._config, self._plan, self._pipeline, self._run_params
            tell_beginning(run, *about, self._unfinished)
            logger.info("MLflow run %s (make ui)", run.info.run_name)
            self._outbox.begin(run.info.run_id)
        return self._outbox

    def _end_failed(self, error: Exception) -> None:
        """A run that a bug or the disk ends is there to be seen, however early that was."""
        refused = isinstance(error, (InputError, ClickException, DataValidationError))
        if not refused:
            self._begin()
        self._close()
        if (run := mlflow.active_run()) is None:
            return
        with tracking.outages_tolerated(run):
            tracking.tell_end(run, reason(error))
            while self._opens_run and mlflow.active_run():
                mlflow.end_run("FAILED")

    def _close(self) -> None:
        self._outbox.close()
        self._held.close()

    def _connect(self, context: KedroContext, loader: StrictConfigLoader) -> None:
        """As mlflow.yml says, unless a run is active: whoever has opened it has connected.

        Of kedro-mlflow's hooks this one alone is used: the others log parameters and files.
        """
        self._opens_run = mlflow.active_run() is None
        plugin = MlflowHook()
        try:
            try:
                plugin.after_context_created(context)
            except MlflowException as error:
                if error.error_code != EXISTS:
                    raise
                plugin.after_context_created(context)  # of two first runs, the other has made it
        except ValidationError as error:
            if error.title != KedroMlflowConfig.__name__:
                raise
            first = error.errors()[0]
            place = loader.place("mlflow", ".".join(map(str, first["loc"])))
            raise BadInput(str(InputError(place, first["input"], first["msg"]))) from None
        except MlflowException as error:
            where = loader.place("mlflow", "server.mlflow_tracking_uri")
            uri = mlflow.get_tracking_uri()
            raise BadInput(str(InputError(where, uri, first_line(error)))) from None
        self._asked = plugin.mlflow_config.tracking.run

    def _check_pipeline(
        self, pipeline: Pipeline, catalog: CatalogProtocol, run_params: dict[str, Any]
    ) -> None:
        """Refuse what these nodes can't do under this configuration."""
        check_inputs(pipeline, catalog, run_params)
        if self._unfinished is not None:
            cells.check_continues(self._unfinished, pipeline)
        refuse_idle(Request(self._config, self._plan, reading(pipeline)))
        if "round_metrics" in pipeline.all_outputs():
            check_execution(self._config.execution)
        check_made(self._config, self._plan, pipeline.all_outputs())

    def _print(self, drawing: Drawing, drawn: Path, printed: Path) -> None:
        """A figure as PDF, if the run wants it; an earlier run's goes."""
        if not self._config.figures:
            drawn.unlink(missing_ok=True)
        if self._config.figures != "pdf":
            printed.unlink(missing_ok=True)
            return
        with replacing(printed) as unfinished:
            write_pdf(drawing.figure(), unfinished)


@cache
def _nodes(*pipelines: ModuleType) -> frozenset[str]:
    """Their nodes' names."""
    return frozenset(node.name for each in pipelines for node in each.create_pipeline().nodes)
