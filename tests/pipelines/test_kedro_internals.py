"""That Kedro still has what only `kedro_internals` may use of it, and that it means the same."""

from pathlib import PurePosixPath

import matplotlib.figure
import pandas as pd
import pytest
from kedro.framework.project import pipelines
from kedro.io import MemoryDataset
from kedro_datasets.json import JSONDataset
from kedro_datasets.matplotlib import MatplotlibDataset
from kedro_datasets.pandas import CSVDataset

from m2fdp.cli import KEDRO_OPTIONS
from m2fdp.pipelines.kedro_internals import all_pipelines, file_of
from m2fdp.pipelines.selection import OPTIONS

CONTENTS = {
    CSVDataset: pd.DataFrame({"a": [1]}),
    JSONDataset: {"a": 1},
    MatplotlibDataset: matplotlib.figure.Figure(),
}


@pytest.mark.parametrize("kind", CONTENTS, ids=lambda kind: kind.__name__)
def test_a_file_dataset_saves_where_its_private_path_says(tmp_path, kind):
    dataset = kind(filepath=str(tmp_path / "before"))
    assert file_of(dataset) == PurePosixPath(tmp_path / "before")
    dataset._filepath = PurePosixPath(tmp_path / "after.png")
    dataset.save(CONTENTS[kind])
    assert [path.name for path in tmp_path.iterdir()] == ["after.png"]


def test_what_lives_in_memory_has_no_file():
    assert file_of(MemoryDataset()) is None


def test_all_pipelines_are_known_after_a_session_that_asked_for_one(project):
    pipelines.set_requested(["topology"])
    assert "training" not in set(pipelines)
    assert {"topology", "training", "__default__"} < set(all_pipelines())


def test_kedros_run_has_the_options_that_this_project_reads():
    other = {"env", "params", "runner", "runner_params", "is_async", "pipeline", "pipelines"}
    assert other | {"load_versions"} | OPTIONS.keys() <= KEDRO_OPTIONS.keys()
    assert KEDRO_OPTIONS["params"].callback is not None
