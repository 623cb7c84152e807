"""That kedro-mlflow's hooks are still those that `tracking_hooks` adapts."""

from __future__ import annotations

import inspect

import pytest
from kedro.io import DataCatalog
from kedro_mlflow.config.kedro_mlflow_config import KedroMlflowConfig
from kedro_mlflow.framework.hooks.mlflow_hook import MlflowHook
from kedro_mlflow.io.catalog.switch_catalog_logging import switch_catalog_logging
from kedro_mlflow.io.metrics import MlflowMetricDataset
from pydantic import BaseModel

from m2fdp.pipelines.tracking_hooks import TrackingHooks


@pytest.mark.parametrize(
    "name",
    [
        "after_context_created",
        "after_catalog_created",
        "before_node_run",
        "before_pipeline_run",
        "on_pipeline_error",
    ],
)
def test_each_adapted_hook_takes_what_the_plugins_own_does(name):
    ours, theirs = (
        list(inspect.signature(getattr(hooks, name)).parameters)
        for hooks in (TrackingHooks, MlflowHook)
    )
    assert ours == theirs


def test_the_plugin_logs_the_inputs_that_a_node_is_said_to_have():
    assert "inputs" in inspect.signature(MlflowHook.before_node_run).parameters
    assert "inputs" in MlflowHook.before_node_run.__code__.co_varnames


def test_logs_of_datasets_can_be_turned_off():
    catalog = DataCatalog({"accuracy": MlflowMetricDataset(key="accuracy")})
    assert catalog["accuracy"]._logging_activated
    switch_catalog_logging(catalog, False)
    assert not catalog["accuracy"]._logging_activated


def test_the_plugins_configuration_names_itself_in_its_errors():
    assert issubclass(KedroMlflowConfig, BaseModel)
    with pytest.raises(ValueError) as refused:
        KedroMlflowConfig.model_validate({"tracking": 1})
    assert refused.value.title == KedroMlflowConfig.__name__


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"type": "kedro_mlflow.io.metrics.MlflowMetricDataset"}, "accuracy"),
        ({"type": "kedro_mlflow.io.metrics.MlflowMetricDataset", "key": "other"}, "other"),
        ({"type": "kedro_mlflow.io.metrics.MlflowMetricHistoryDataset"}, "accuracy"),
    ],
)
def test_a_metric_without_a_name_gets_its_datasets(entry, key):
    described = {"accuracy": entry, "table": {"type": "pandas.CSVDataset", "filepath": "x.csv"}}
    catalog = DataCatalog.from_config(described)
    TrackingHooks().after_catalog_created(catalog, described, {}, {}, "", {})
    assert catalog["accuracy"].key == key
