"""A session's configuration is read once and handed out as often as it is asked for."""

import pytest

from m2fdp.core.errors import InputError
from m2fdp.pipelines import configuration
from m2fdp.pipelines.configuration import StrictConfigLoader, check_catalog


@pytest.fixture(autouse=True)
def environments(tmp_path):
    for env in ("base", "local", "other"):
        (tmp_path / env).mkdir()


def loader_of(folder, env=None, **params):
    options = {"base_env": "base", "default_run_env": "local"}
    return StrictConfigLoader(folder, env, runtime_params=params, **options)


def test_the_files_are_read_once_and_nobody_changes_what_the_next_gets(tmp_path):
    file = tmp_path / "base" / "parameters.yml"
    file.write_text("training: {rounds: 3}\n")
    loader = loader_of(tmp_path)
    loader["parameters"]["training"]["rounds"] = 4
    file.write_text("training: {rounds: 5}\n")
    assert loader["parameters"] == {"training": {"rounds": 3}}
    assert loader_of(tmp_path)["parameters"] == {"training": {"rounds": 5}}
    loader["parameters"] = {"seed": 4}  # what somebody sets is what everybody gets
    assert loader["parameters"] == {"seed": 4}


@pytest.fixture
def parsed(monkeypatch):
    """The texts that have been parsed."""
    texts = []
    read = configuration.read_parameters

    def record(file):
        texts.append(file.read_text())
        return read(file)

    monkeypatch.setattr(configuration, "read_parameters", record)
    return texts


def test_files_of_the_same_contents_are_parsed_once_a_process(tmp_path, parsed):
    text = "training: {rounds: 3}  # of this test\n"
    (tmp_path / "base" / "parameters.yml").write_text(text)
    (tmp_path / "other" / "parameters.yml").write_text("training: {rounds: 4}\n")

    def rounds(env=None, **params):
        return loader_of(tmp_path, env, **params)["parameters"]["training"]["rounds"]

    assert [rounds(), rounds(training={"rounds": 7}), rounds()] == [3, 7, 3]
    assert parsed.count(text) == 1
    assert [rounds("other"), rounds()] == [4, 3]
    (tmp_path / "base" / "parameters.yml").write_text("training: {rounds: 5}\n")
    assert rounds() == 5
    (tmp_path / "local" / "parameters.yml").write_text("training: {rounds: 6}\n")
    assert rounds() == 6
    (tmp_path / "local" / "parameters.yml").write_text("seed: 1\nseed: 2\n")
    for _ in range(2):
        with pytest.raises(InputError, match="seed"):
            rounds()


def test_a_catalog_is_refused_with_the_line_of_the_entry_that_is_wrong(tmp_path):
    text = """
_cell: ${runtime_params:cell,single}
manifest:
  type: kedro_mlflow.io.artifacts.MlflowArtifactDataset
  dataset: {type: pandas.CSVDataset, filepath: "data/${_cell}/manifest.csv"}
  validator:
    class: m2fdp.validation.ManifestValidator
    options: {filepath: "data/${_cell}/checks.html"}
checkpoints: {type: m2fdp.pipelines.datasets.FolderDataset, path: "data/${_cell}/checkpoints"}
"""
    file = tmp_path / "base" / "catalog.yml"

    file.write_text(text)
    check_catalog(loader_of(tmp_path))
    for was, is_now, line in (
        ("pandas.CSVDataset", "pandas.NoSuchDataset", "line 3: manifest"),
        ("Dataset, path:", "Dataset, folder:", "checkpoints"),
    ):
        file.write_text(text.replace(was, is_now))
        with pytest.raises(InputError, match=line):
            check_catalog(loader_of(tmp_path))
