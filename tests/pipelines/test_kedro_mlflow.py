"""What `m2fdp.hooks` uses of kedro-mlflow, and what it does in the place of its other hooks."""

import pytest
from kedro.io import DataCatalog
from kedro_mlflow.config.kedro_mlflow_config import KedroMlflowConfig
from kedro_mlflow.io.catalog.switch_catalog_logging import switch_catalog_logging
from kedro_mlflow.io.metrics import MlflowMetricDataset
from pydantic import BaseModel

from m2fdp.pipelines.recording import CatalogEntries


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


@pytest.mark.parametrize(("options", "key"), [({}, "accuracy"), ({"key": "other"}, "other")])
def test_a_metric_without_a_name_has_its_datasets(options, key):
    validator = {"options": {"filepath": "checks.html"}}
    described = {
        "accuracy": {"type": "kedro_mlflow.io.metrics.MlflowMetricDataset"} | options,
        "manifest": {
            "type": "m2fdp.Checked",
            "dataset": {"filepath": "manifest.csv"},
            "validator": validator,
        },
        "checkpoints": {"type": "m2fdp.Folder", "path": "cell/checkpoints"},
    }
    assert CatalogEntries.of(described).metrics == {"accuracy": key}
