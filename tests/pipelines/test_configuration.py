"""A session's configuration is read once and handed out as often as it is asked for."""

import pytest

from m2fdp.core.errors import InputError
from m2fdp.pipelines import configuration
from m2fdp.pipelines.configuration import StrictConfigLoader, check_catalog


def test_the_files_are_read_once_and_nobody_changes_what_the_next_gets(tmp_path):
    for env in ("base", "local"):
        (tmp_path / env).mkdir()
    file = tmp_path / "base" / "parameters.yml"
    file.write_text("training: {rounds: 3}\n")
    loader = StrictConfigLoader(tmp_path, base_env="base", default_run_env="local")
    loader["parameters"]["training"]["rounds"] = 4
    file.write_text("training: {rounds: 5}\n")
    assert loader["parameters"] == {"training": {"rounds": 3}}
    later_loader = StrictConfigLoader(tmp_path, base_env="base", default_run_env="local")
    assert later_loader["parameters"] == {"training": {"rounds": 5}}


def test_what_somebody_sets_is_what_everybody_gets(tmp_path):
    for env in ("base", "local"):
        (tmp_path / env).mkdir()
    (tmp_path / "base" / "parameters.yml").write_text("seed: 3\n")
    loader = StrictConfigLoader(tmp_path, base_env="base", default_run_env="local")
    assert loader["parameters"] == {"seed": 3}
    loader["parameters"] = {"seed": 4}
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
    for env in ("base", "local", "other"):
        (tmp_path / env).mkdir()
    text = "training: {rounds: 3}  # of this test\n"
    (tmp_path / "base" / "parameters.yml").write_text(text)
    (tmp_path / "other" / "parameters.yml").write_text("training: {rounds: 4}\n")

    def rounds(env=None, **params):
        options = {"base_env": "base", "default_run_env": "local"}
        loader = StrictConfigLoader(tmp_path, env, runtime_params=params, **options)
        return loader["parameters"]["training"]["rounds"]

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
    for env in ("base", "local"):
        (tmp_path / env).mkdir()
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

    def check():
        check_catalog(StrictConfigLoader(tmp_path, base_env="base", default_run_env="local"))

    file.write_text(text)
    check()
    file.write_text(text.replace("pandas.CSVDataset", "pandas.NoSuchDataset"))
    with pytest.raises(InputError, match="line 3: manifest"):
        check()
    file.write_text(text.replace("Dataset, path:", "Dataset, folder:"))
    with pytest.raises(InputError, match="checkpoints"):
        check()
