"""The notebooks run from top to bottom on the runs that a study leaves."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

import mlflow
import nbformat
import numpy as np
import pytest
import yaml
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from tests.studies.logged_runs import log_run

from m2fdp.core.errors import InputError
from m2fdp.pipelines.configuration import project_of

REPOSITORY = Path(__file__).parents[1]
NOTEBOOKS = REPOSITORY / "notebooks"
# Whose outputs are part of them.
TUTORIALS = ("first_run", "your_own_data", "your_own_algorithm", "read_a_ledger", "compare_runs")
TRAINING = "!kedro study sweep"  # begins the cell of `compare_runs` that makes its runs


@pytest.fixture
def store(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty store, of this process and of the kernels that it starts."""
    before = mlflow.get_tracking_uri()
    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path)}"
    for variable in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(variable, raising=False)
    mlflow.set_tracking_uri(uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    yield
    mlflow.set_tracking_uri(before)


def execute(name: str, changed: Mapping[str, str] | None = None) -> list[nbformat.NotebookNode]:
    """The notebook's code cells after a run from top to bottom.

    Args:
        changed: texts of its cells, and what a user writes in their place.
    """
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        for old, new in (changed or {}).items():
            cell.source = cell.source.replace(old, new)
    NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOKS)}}
    ).execute()
    assert "TqdmWarning" not in nbformat.writes(notebook)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.full
def test_compare_runs_shows_the_table_and_the_figure(store):
    for seed in (0, 1):
        log_run("hfl", seed, (0.5, 0.9), study="quickstart")
        log_run("m2fdp", seed, (0.4, 0.8 + 0.02 * seed), study="quickstart")
    log_run("m2fdp", 0, (0.1,), study="another")
    quickstart = {"sweep-topology.trust.ratios": "quickstart", TRAINING: "!true"}
    *_, runs, table, figure = execute("compare_runs", quickstart)
    assert runs.outputs[0].data["text/html"].count("<tr") == 1 + 4  # names, runs
    assert "0.810 ± 0.014" in table.outputs[0].data["text/html"]
    assert "3.90" in table.outputs[0].data["text/html"]
    assert "image/png" in figure.outputs[0].data


@pytest.mark.full
def test_the_main_comparison_shows_figure_table_and_claims(store):
    for seed in (0, 1):
        fig5 = {"study": "fig5", "version": "verified"}
        log_run("hfl", seed, (0.5, 0.803), arm="hfl", **fig5)
        log_run("m2fdp", seed, (0.4, 0.795), arm="p1_1", **fig5)
        log_run("m2fdp", seed, (0.4, 0.1), arm="p1_1", stage="search", **fig5)
    *_, figure, table, claims = execute("main_comparison")
    assert "image/png" in figure.outputs[0].data
    assert "0.795 ± 0.000" in table.outputs[0].data["text/html"]
    assert "+0.8 points (computed), ε = 3.90: holds" in claims.outputs[0].data["text/html"]


@pytest.mark.full
@pytest.mark.parametrize("name", ["quickstart", "sweep-algorithm"])
def test_the_main_comparison_shows_a_study_without_claims_and_a_sweep(store, name):
    order = {"name": "sweep", "over": ["algorithm=hfl|m2fdp"], "seeds": 2}
    tags = {"study": name, "role": "study", "order": json.dumps(order)}
    with nullcontext() if name == "quickstart" else mlflow.start_run(experiment_id="0", tags=tags):
        pass
    for seed in (0, 1):
        log_run("hfl", seed, (0.5, 0.9), study=name)
        log_run("m2fdp", seed, (0.4, 0.8), study=name)
    *_, figure, table, claims = execute("main_comparison", {'"fig5"': f'"{name}"'})
    assert "image/png" in figure.outputs[0].data
    assert "0.800 ± 0.000" in table.outputs[0].data["text/html"]
    assert "no claims" in claims.outputs[0].data["text/plain"]
    assert not [out for cell in (figure, table, claims) for out in cell.outputs if "name" in out]


@pytest.mark.full
@pytest.mark.parametrize("name", ["compare_runs", "main_comparison"])
def test_notebooks_say_how_to_get_runs(store, name):
    with pytest.raises(CellExecutionError, match="kedro study quickstart"):
        execute(name, {TRAINING: "!true"})


def shown(cells: Iterable[nbformat.NotebookNode]) -> list[str]:
    """What code cells show as text, a text a cell."""
    outputs = (
        "".join(each.get("text") or each.get("data", {}).get("text/plain", "") for each in one)
        for one in (cell.outputs for cell in cells if cell.cell_type == "code")
    )
    return list(outputs)


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_shows_what_it_makes(name, tmp_path, store):
    """In a project of its own: the commands of its cells write there."""
    for part in ("conf", "pyproject.toml", "notebooks", "src"):
        copy = shutil.copytree if (REPOSITORY / part).is_dir() else shutil.copy
        copy(REPOSITORY / part, tmp_path / part)
    table = Path("data/01_raw/heart/heart_disease_uci.csv")
    kept = yaml.safe_load((REPOSITORY / f"{table}.dvc").read_text(encoding="utf-8"))
    digest = kept["outs"][0]["md5"]
    (tmp_path / table.parent).mkdir(parents=True)
    shutil.copy(REPOSITORY / ".dvcstore/files/md5" / digest[:2] / digest[2:], tmp_path / table)
    path = tmp_path / "notebooks" / f"{name}.ipynb"
    committed, again = (nbformat.read(path, as_version=4) for _ in range(2))
    there = {"metadata": {"path": str(path.parent)}}
    NotebookClient(again, timeout=300, resources=there).execute()
    for before, now in zip(shown(committed.cells), shown(again.cells), strict=True):
        numbers = [re.findall(r"-?\d+\.\d+", text) for text in (before, now)]
        assert re.sub(r"[\d.]+", "#", before) == re.sub(r"[\d.]+", "#", now)
        # Another processor rounds otherwise, and a record of a test split weighs half a point.
        assert np.array(numbers[1], float) == pytest.approx(np.array(numbers[0], float), abs=0.02)


WITHOUT_OUTPUTS = [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if path.stem not in TUTORIALS]


@pytest.mark.parametrize("path", WITHOUT_OUTPUTS, ids=lambda path: path.stem)
def test_outputs_are_not_committed(path):
    cells = nbformat.read(path, as_version=4).cells
    assert not any(
        cell.outputs or cell.execution_count for cell in cells if cell.cell_type == "code"
    )


def test_a_notebook_elsewhere_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="is in no project of m2fdp; start from"):
        project_of(tmp_path)
    command = [sys.executable, "-m", "m2fdp", "run"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 2 and run.stderr.count("\n") == 1 and "in no project" in run.stderr
    assert project_of(NOTEBOOKS) == NOTEBOOKS.parent and not list(tmp_path.iterdir())
