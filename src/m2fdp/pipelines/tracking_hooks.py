"""kedro-mlflow's hooks, less its logs of parameters and files: `m2fdp.hooks` has its own.

The plugin offers no settings for that, so its class is adapted. That its hooks are the methods of
`MlflowHook`, that `before_node_run` logs what it is given as `inputs`, and that
`switch_catalog_logging` turns its logs of datasets off, are the plugin's own affair:
`tests/pipelines/test_tracking_hooks.py` fails when that changes.
"""

from __future__ import annotations

from typing import Any, cast

import mlflow
from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from kedro_mlflow.config.kedro_mlflow_config import KedroMlflowConfig
from kedro_mlflow.framework.hooks.mlflow_hook import MlflowHook
from kedro_mlflow.io.catalog.switch_catalog_logging import switch_catalog_logging
from pydantic import ValidationError

from m2fdp.command_errors import BadInput
from m2fdp.errors import chain
from m2fdp.interruption import Interrupted
from m2fdp.pipelines import tracking
from m2fdp.pipelines.causes import reason
from m2fdp.pipelines.configuration import StrictConfigLoader, mlflow_refusal
from m2fdp.pipelines.mlflow_internals import outside_notebooks

# Of Kedro's parameters of a run, which the plugin would make tags: places of this machine, objects,
# and what stands elsewhere on the run's page.
_UNTOLD = frozenset(
    {"project_path", "run_id", "session_id", "runner", "extra_params", "runtime_params"}
)


class TrackingHooks(MlflowHook):
    """Opens and closes the MLflow run of a session, and logs nothing in it."""

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        try:
            super().after_context_created(context)
        except ValidationError as error:
            if error.title != KedroMlflowConfig.__name__:
                raise
            loader = cast(StrictConfigLoader, context.config_loader)  # settings.py says so
            raise BadInput(str(mlflow_refusal(loader, error))) from None

    @hook_impl
    def after_catalog_created(
        self,
        catalog: CatalogProtocol,
        conf_catalog: dict[str, Any],
        conf_creds: dict[str, Any],
        parameters: dict[str, Any],
        save_version: str,
        load_versions: dict[str, str],
    ) -> None:
        """Only where there is a metric that the plugin would name: it makes all datasets for it."""
        if any(map(_is_unnamed_metric, conf_catalog.values())):
            super().after_catalog_created(
                catalog, conf_catalog, conf_creds, parameters, save_version, load_versions
            )

    @hook_impl
    def before_node_run(
        self, node: Node, catalog: CatalogProtocol, inputs: dict[str, Any], is_async: bool
    ) -> None:
        super().before_node_run(node, catalog, {}, is_async)

    @hook_impl
    def before_pipeline_run(
        self, run_params: dict[str, Any], pipeline: Pipeline, catalog: CatalogProtocol
    ) -> None:
        told = {key: value for key, value in run_params.items() if key not in _UNTOLD}
        with outside_notebooks():
            super().before_pipeline_run(told, pipeline, catalog)
        # `RunHooks` sends what is saved: here a store that fails would fail the run. What the
        # pipeline has no part in is not made for this.
        used = {name: catalog[name] for name in sorted(pipeline.datasets()) if name in catalog}
        switch_catalog_logging(used, False)

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
            with tracking.outages_tolerated(run):
                tracking.tell_end(run, reason(error))
                super().on_pipeline_error(error, run_params, pipeline, catalog)


def _is_unnamed_metric(entry: Any) -> bool:
    kind = str(entry.get("type", ""))
    return "Mlflow" in kind and "Metric" in kind and not (entry.get("key") or entry.get("prefix"))
