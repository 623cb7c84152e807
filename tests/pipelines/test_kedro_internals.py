"""That Kedro and kedro-mlflow still have what is used of them, and the layers of the catalog."""

import re
from graphlib import TopologicalSorter
from pathlib import PurePosixPath

import matplotlib.figure
import pandas as pd
import pytest
import yaml
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project
from kedro.io import DataCatalog
from kedro_datasets.json import JSONDataset
from kedro_datasets.matplotlib import MatplotlibDataset
from kedro_datasets.pandas import CSVDataset
from kedro_mlflow.config.kedro_mlflow_config import KedroMlflowConfig
from kedro_mlflow.io.catalog.switch_catalog_logging import switch_catalog_logging
from kedro_mlflow.io.metrics import MlflowMetricDataset
from pydantic import BaseModel
from tests.finished import REPOSITORY

from m2fdp.cli import KEDRO_OPTIONS
from m2fdp.pipelines.configuration import CatalogEntries
from m2fdp.pipelines.selection import OPTIONS, all_pipelines

CONTENTS = {
    CSVDataset: pd.DataFrame({"a": [1]}),
    JSONDataset: {"a": 1},
    MatplotlibDataset: matplotlib.figure.Figure(),
}


@pytest.mark.parametrize("kind", CONTENTS, ids=lambda kind: kind.__name__)
def test_a_file_dataset_saves_where_its_private_path_says(tmp_path, kind):
    dataset = kind(filepath=str(tmp_path / "before"))
    assert dataset._filepath == PurePosixPath(tmp_path / "before")
    dataset._filepath = PurePosixPath(tmp_path / "after.png")
    dataset.save(CONTENTS[kind])
    assert [path.name for path in tmp_path.iterdir()] == ["after.png"]


def test_all_pipelines_are_known_after_a_session_that_asked_for_one(project):
    pipelines.set_requested(["topology"])
    assert "training" not in set(pipelines)
    assert {"topology", "training", "__default__"} < set(all_pipelines())


def test_kedros_run_has_the_options_that_this_project_reads():
    other = {"env", "params", "runner", "runner_params", "is_async", "pipeline", "pipelines"}
    assert other | {"load_versions"} | OPTIONS.keys() <= KEDRO_OPTIONS.keys()
    assert KEDRO_OPTIONS["params"].callback is not None


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
    file = {"dataset": {"filepath": "manifest.csv"}, "validator": validator}
    described = {
        "accuracy": {"type": "kedro_mlflow.io.metrics.MlflowMetricDataset"} | options,
        "manifest": {"type": "m2fdp.Checked"} | file,
        "table_rows": {"type": "m2fdp.Checked"} | file,
        "checkpoints": {"type": "m2fdp.Folder", "path": "cell/checkpoints"},
    }
    assert CatalogEntries.of(described).metrics == {"accuracy": key}


CATALOG = (REPOSITORY / "conf" / "base" / "catalog.yml").read_text()
# Values that are resolved when a run begins say nothing of layers.
ENTRIES = yaml.safe_load(re.sub(r"\$\{[^}]*\}", "x", CATALOG))
LAYERS = {
    name: entry["metadata"]["kedro-viz"]["layer"]
    for name, entry in ENTRIES.items()
    if "metadata" in entry
}


def layers_above(pipeline):
    """For each layer those of what its datasets are made of, through what has none itself."""
    made_of = {output: node.inputs for node in pipeline.nodes for output in node.outputs}

    def layered(dataset):
        for origin in made_of.get(dataset, ()):
            yield from [LAYERS[origin]] if origin in LAYERS else layered(origin)

    above = {layer: set() for layer in LAYERS.values()}
    for dataset, layer in LAYERS.items():
        above[layer] |= set(layered(dataset)) - {layer}
    return above


def test_no_layer_is_above_and_below_another():
    bootstrap_project(REPOSITORY)
    assert {"__default__", "attack", "audit"} <= pipelines.keys()
    for pipeline in pipelines.values():
        order = list(TopologicalSorter(layers_above(pipeline)).static_order())  # refuses a circle
        assert set(order) == set(LAYERS.values())
